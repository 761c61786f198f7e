//! The bugs that tests plant: each leaves out one rule.

/// One bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// Validated reads do not raise `latest_read` (step 3 of validation left out).
    NoStep3,
    /// The read bound is forgotten at a restart.
    ForgottenReadBound,
    /// Reads up to where a run began are served before its first bound is durable.
    ReadBeforeFirstBound,
    /// The log reports batches as durable before they are synced.
    EarlyAcknowledgement,
    /// A participant votes before its promise is durable.
    EarlyVote,
    /// Recovery skips the last block of the log.
    SkippedBlock,
    /// Reads of absent keys leave no access record.
    UnrecordedAbsence,
    /// A range is read around a promise at or below the snapshot.
    RangeAroundPromise,
    /// A range is read, and nothing is noted of it.
    UnmarkedRange,
    /// What a transaction has read of a range downwards counts as what it has not read.
    ValidatesOtherEnd,
    /// A validated range is not marked as read at the commit timestamp.
    UnraisedRange,
    /// A transaction writes to a keyspace that it clears, or reads it.
    WritesBesideFence,
    /// Validation does not look for what others have prepared in a range.
    PreparedInRange,
    /// Validation does not look for versions in a range that lie above begin.
    NewerInRange,
    /// A write set that comes after its promise was lost is no conflict for ranges that were read without it.
    LateInRange,
    /// What was promised before a restart, or at another primary, is looked for in no range.
    UnorderedPromises,
    /// A commit is applied at the first promised timestamp instead of the decided one.
    AppliedAtPrepared,
    /// Outcomes are forgotten at once, so that a late prepare is accepted after its decision.
    LatePrepare,
    /// Tombstones are collected too early.
    EarlyTombstone,
    /// A look-up in a chain takes the first record of its key for the youngest, whatever it says.
    TrustsFlagged,
    /// A block of large values is emptied although a value that lies there has no head yet.
    EmptiesBesideHeads,
    /// A translation keeps the old head of a large value that has left its block.
    KeepsOldHead,
    /// A checkpoint does not know which pages a crash has taken.
    ForgetsTornPages,
    /// A block is erased before the chains that were rewritten for it are durable.
    ErasesBeforeDurable,
    /// A record of the log's tail is dropped for a version that lies above the watermark.
    JudgesAboveWatermark,
    /// A look-up trusts the chain behind a record that leads past one that a crash has taken.
    TrustsPassed,
    /// A bucket that is written whole for its long chain lacks what was put since it was gathered.
    ShortensStale,
    /// A bucket that is written whole begins in whatever page is open.
    SplitsWholeBuckets,
    /// A bucket is written whole of which a look-up has gathered a part.
    HandsOverParts,
    /// What lies where a record of a bucket lay is taken for that record, though its block was used anew.
    JoinsUsedAnew,
    /// Of copies of a version the one is kept that its chain leads to first, though its block was emptied.
    KeepsFirstCopy,
    /// Pages that were read ahead stay in memory when their block has left the log.
    KeepsReadAhead,
    /// A bucket leaves the log's tail without what was put since it was gathered ahead.
    TrustsEarly,
    /// What was gathered ahead for a block that has left is taken for what is gathered for a later one.
    TakesOutlived,
    /// The place of a loose version is given to another key.
    EvictsLoose,
    /// A fence goes through the index while a checkpoint is written.
    SweepsBesideCheckpoint,
    /// Checkpoints do not tell of loose versions.
    ForgetsLoose,
    /// What a bucket's last whole rewriting made void stays so when that has left the log's tail.
    KeepsOldMarks,
    /// The name of a period in which an older version was written is given to a later period, and still noted.
    KeepsOldNames,
    /// A page of a scan leaves out what it cannot hold, and the next one begins behind that.
    ScanSkips,
    /// A page of a range leaves out the key that it has no room for, and the next one begins behind
    /// it.
    RangeSkips,
    /// A page of a range ends only when it is full, however many keys are not visible.
    EndlessPages,
    /// Pages of scans and ranges are answered whatever memory for answers is left, and count nowhere.
    UncountedPages,
    /// As many pages are made at once as are asked for.
    PagesWithoutBound,
    /// A transaction commits without a write that its client's event loop had no room for.
    CommitsUnwritten,
    /// Transactions that nobody owns are forgotten when no call waits.
    ForgetsWhenIdle,
    /// A snapshot of a keyspace that waits for clocks has to be the latest state to be committed.
    RefusesSnapshots,
    /// A page that waits or is being made is made once more when it is asked for again.
    RepeatsPages,
    /// The line of pages serves one reply address as long as that has some in it.
    PagesOfOneFirst,
    /// A walk asks for ever for what the device fails to read.
    TriesForEver,
    /// A page is made however long it has waited.
    MakesOldPages,
    /// A page is made that nobody has asked for again for long.
    MakesLeftPages,
    /// A checkpoint leaves out a key of an order wherever it pauses.
    CheckpointSkipsKeys,
    /// Recovery does not take keys that a scan finds into their order.
    ScanMissesKeys,
    /// A key leaves its order with any version of it that is collected, and not with the last one.
    LeavesOrderEarly,
    /// A write to a key that is in its order already does not show to those who pass over what is
    /// old.
    UnnotedRewrites,
    /// A write that is refused for want of room keeps the room from becoming free.
    KeepsRefusedWrites,
    /// Scans begin wherever the clock of whoever asks stands.
    ScanBelowAcknowledged,
    /// A shard's watermark looks at one session only.
    WatermarkOfOne,
    /// A server that is stopped ends before others have taken over its shards.
    EndsBeforeHandOver,
    /// A primary hands its shard over to a replica that does not follow it.
    HandsOverToAnybody,
    /// A primary that reaches no other replica stays it, although others reach each other.
    WaitsForDeaf,
    /// A controller that hears no server stays it while it reaches the master.
    KeepsDeafTerm,
    /// A server takes every step of its clock at once.
    FollowedStep,
    /// A server's time begins when its process starts, and not when it serves.
    TimeOfStart,
    /// A client's unfinished writes hold the watermark of every shard, not only of those that they
    /// concern.
    HeldEverywhere,
    /// A client's report ignores its oldest open transaction.
    IgnoredSession,
    /// The low-water timestamp moves backwards.
    FallingLowWater,
    /// A duplicate of a promised prepare is validated again.
    RevalidatedDuplicate,
    /// A participant's vote counts as often as it comes.
    DuplicateVote,
    /// Votes for lower timestamps count.
    LowerVote,
    /// Termination answers without freezing.
    NoFreeze,
    /// A key is free before its put can be read.
    EarlyRelease,
    /// Recovery drops prepared transactions.
    LostPromise,
    /// Connections that are silent are never given up.
    NeverRedials,
    /// A commit that should wait for the clocks is acknowledged without the wait.
    NoExternalWait,
    /// Versions that nobody may read any more are never given up.
    DeadVersions,
    /// Outcomes of decided transactions are never forgotten.
    HoardedOutcomes,
    /// Clients that are gone are never forgotten.
    HoardedClients,
    /// A shard never tells its log what it no longer needs.
    HoardedLog,
    /// Log files stay on the manifest when they go.
    StaleManifest,
    /// What was committed while a look-up was under way is missing in its answer.
    StaleLookups,
    /// Recovery believes promises whose decisions are gone from the log.
    RevivedPromise,
    /// A shard counts writes in recovered batches as settled by the watermark, although a log can
    /// hand them out again.
    EarlyReplayFloor,
    /// A shard that goes on without a log takes what an earlier run logged for gone at once, and
    /// never releases it.
    NoHandOver,
    /// A shard that goes on without a log acknowledges decisions about promises of the earlier run
    /// before their puts are on the device.
    EarlyHandOverAck,
    /// A shard without a log carries forward what holds up a log of an earlier run.
    CarriesWithoutLog,
    /// A shard that has asked another one to end a transaction does not hear that it has ended
    /// there.
    IgnoredEnds,
    /// A shard closes its store at the end although what it promised is undecided, and one without
    /// a log saves nothing of it.
    EndsUndecided,
    /// A shard without a log saves nothing at its end of what others have not been told.
    LeavesNothing,
    /// A run with a log takes what its log tells of the past for all of it, although a run without
    /// a log served meanwhile.
    ForgottenUnloggedRun,
    /// A run that cannot be certain what the last one served goes on with the watermark that its
    /// store finds.
    StaleWatermark,
    /// A single write below a watermark that a restart has put ahead of the clock is refused,
    /// although the clock will have passed it soon.
    RefusesBelowAheadWatermark,
    /// A run without a log does not save how far it has lived.
    ForgottenLife,
    /// A run without a log, by a clock that was set back too far, does not save how far the logs
    /// say that time had come.
    ForgetsWhatLogsTold,
    /// An outage counts as time for which a server has been waited for.
    CountedOutage,
    /// Whatever folder is found among the logs is taken for a log.
    EveryFolderIsALog,
    /// What earlier runs recorded grows old by the clock alone, although that may have been set
    /// back.
    AgeByTheClock,
    /// After a restart, expiry is judged by the clock alone, although that may have been set back.
    ForgottenExpiry,
    /// After a restart, what the last run may have told expired since its last durable bound is
    /// told alive.
    ForgottenToldExpiry,
    /// Expiry is told although no bound is durable that lets the next run know.
    UnsettledExpiry,
    /// A restart forgets which sessions live.
    ForgottenSessions,
    /// Without a log, what a put supersedes is collected although that put is not durable.
    PrunedTooEarly,
    /// Shards let writes in although their log has no room for another file.
    IgnoredLogShortage,
    /// A run without a log does not save at its end how far it has lived.
    ForgottenEnd,
    /// The last read bound of a run with a log goes with that log in the next one, which has none.
    ForgottenBound,
    /// A shard that takes the last log of a run without one does not hear that it has failed
    /// already.
    UntoldLastLog,
    /// A shard whose hand-over ends late lets go what is in the last log of a run without one, too.
    ReleasedLastLog,
    /// What frees a file of a log waits behind a batch that has no room there.
    WaitingRelease,
    /// A log leaves the manifest with its last file, although a file that was taken off it before
    /// may still be there.
    UnlistedWithLastFile,
    /// An accepted loss of a log's file is forgotten when the one before it is taken off the
    /// manifest, although that may still be there.
    ForgetsLossEarly,
    /// Behind a bad block in a file of a log, a loss that was accepted counts for all that is
    /// missing, whatever stands in the rest of the file.
    LossHidesDamage,
    /// A log ends where the disk does not read what may be its next block.
    EndsAtUnread,
    /// What is left of a fresh file of a log that could not be recorded stays where it is.
    KeepsBlankFile,
    /// What a store finds at an opening counts as durable, although only a cache holds it.
    UnsyncedIsStable,
    /// A write that was reported as unknown goes on being tried at later timestamps.
    UndoneWrite,
    /// An answer to a write's earlier identity counts for the one under which it is tried again.
    MixesIdentities,
    /// A transaction whose handles are gone stays, where the queue of calls had no room to say so.
    KeepsUnowned,
    /// What a refused write found is told of the one that took place.
    KeepsRefusedPrevious,
    /// How long a write may wait stays with its place among the requests, for whoever comes next.
    KeepsLeave,
    /// A put whose timestamp is too low is placed above it, however late it arrives.
    PlacesAtWill,
    /// Collection leaves the index with a large value that nobody needs any more, in a block that it erases.
    LeavesNodes,
    /// A head that a large value has left in another block counts as none.
    ForgetsOldHeads,
    /// What was moved out of a block that could not be erased is not counted as dead there: when the tombstones
    /// have gone, a restart finds it.
    ForgetsUnerased,
    /// What was moved out of a block is not counted as dead there when the block that it was moved to is erased first.
    OutlivesItsMove,
    /// What was moved out of a block is counted down when that is erased although its key had left the index when it
    /// was to be counted.
    CountsUncountedDown,
    /// Several blocks are emptied at once although what is free may be too little to finish them all.
    EmptiesTooMany,
    /// Parts of large values take the room that blocks need which are being emptied.
    PartsTakeAll,
    /// What is known to be wanted of the log's tail is moved by itself although its bucket may have records in a block that was
    /// set aside: nothing leads to those any more.
    MovesBesideAside,
    /// A block of the log goes although tombstones were dropped while it was emptied, and an earlier one could not be
    /// erased meanwhile: what they hid is there.
    ForgetsBesideFailed,
    /// After a restart a block of the log goes although an earlier one stays that has what tombstones in it hid, which
    /// were dropped before the restart.
    ForgetsDropped,
    /// A tombstone counts as dead in its block although it hides something: collection moves such blocks again and
    /// again, and wins nothing.
    TombstonesCountAsDead,
    /// The parts of a tombstone that hides nothing any more never count as dead.
    KeepsTombstoneParts,
    /// A tombstone that has counted as dead since it hides nothing counts again when a fence hides it.
    CountsBareAgain,
    /// The parts of large values that a fence hides never count as dead.
    FenceKeepsParts,
    /// The parts of a large value that a fence hides never count as dead where one of their blocks is erased before
    /// the head is read.
    VoidKeepsParts,
    /// An index that a fence dropped whole goes on naming heads of large values that were on their way out of a block
    /// then, when that is erased.
    NamesErasedHeads,
    /// A write that has waited for a promise, and then for a page, may wait for a promise again.
    WaitsAnew,
    /// What a peer does not read stays in pooled buffers, however short it is.
    KeepsPooledBuffers,
    /// Dead records that lie above a fence are not counted any more when it has been through.
    ForgetsDeadAboveFence,
    /// Dead records of a key are forgotten while it has no version in the index.
    ForgetsOrphans,
    /// What a fence has hidden since it was met is counted down when its block is erased.
    CountsHiddenDown,
    /// A block that a crash left in doubt is cleaned although somebody reads in it.
    CleansWhatIsRead,
    /// Buckets with long chains are gathered by the hundred, and written in the pumps in which they are there.
    ShortensManyAtOnce,
    /// A block is erased at once, whoever writes on its channel.
    ErasesInFrontOfPrograms,
    /// The translation layer erases what it has moved before its journal says where to.
    ErasesUnjournaled,
    /// The journal of the translation layer names pages that are not durable.
    JournalsUnsynced,
    /// A block whose first page reads as empty holds nothing, whatever the index says.
    BelievesEmptyPages,
    /// Pages that a start could not read count as read when a checkpoint is written.
    ForgetsUnread,
    /// A block with pages that a start could not read is erased when they can be read later.
    ErasesUnread,
    /// Parts of a large value whose head a start may not have read are erased.
    DropsHeadless,
    /// A chain that is written again without what could not be read makes that void.
    VoidsUnread,
    /// Versions are loose while a younger one of their key may lie on a page that was not read.
    LooseBesideUnread,
    /// What is put in front of a chain says that nothing younger is behind it, while a page is not read.
    LeadsBesideUnread,
    /// A backup that becomes the shard expects that nobody was reading there.
    NobodyReadsYet,
    /// What is stored is copied although pages of it were not read.
    CopiesBesideUnread,
    /// A checkpoint is given up when the watermark passes a version while an older one is read.
    FailsPassedWalk,
    /// A replica that was to lead asks for another epoch, or another primary, for ever.
    KeepsWish,
    /// What is recorded again for a checkpoint counts as what its taker is behind with.
    CountsTappedState,
    /// A backup keeps the last read bound, which may be lower than the one before.
    KeepsLastBound,
    /// A backup answers reads although its device has not read all that it has.
    ReadsBesideUnreadPages,
    /// A controller does not look whether a replica's device has read all that it has.
    LeadsBesideUnreadPages,
    /// A controller takes a shard from a replica with unread pages for one that has just failed to
    /// lead it, as often as it fails.
    TriesAgainAtOnce,
    /// A primary begins checkpoints again and again although its store cannot be read.
    ExportsInVain,
    /// A replica sends everything at once that a candidate lacks.
    AnswersFetchWhole,
    /// Parts for which only a void head is known are erased, although the right one may be on a page that was not
    /// read.
    TrustsVoidHeads,
    /// A block of a checkpoint is erased while a program of it is under way.
    ErasesUnderWay,
    /// In a bucket in pieces the order of the newest chain is trusted.
    TrustsPieces,
    /// What could not be programmed counts as durable once something later is.
    ForgetsDisplaced,
    /// A large value that is being written is not written again when a block with parts of it fails.
    KeepsLostParts,
    /// Whatever says that it answers for a peer is believed.
    TakesAnswersOfAnybody,
    /// A question about a transaction from the end of time is recorded.
    RecordsTheFuture,
    /// A new primary aborts what an earlier one may have committed, and forgotten on its client's word.
    AbortsWhatItForgot,
    /// A promise that was carried out before a run without a log is recorded as aborted.
    AbortsLeftovers,
    /// A shard whose clock is held reads what is latest at a lower timestamp than it is asked for.
    MovesReadsBack,
    /// A read of what is latest is asked for again below a write that its session has given up.
    ReadsBelowGivenUp,
    /// What a primary answers that was deposed counts, whatever it rests on.
    LateAnswerOfDeposed,
    /// What a copy of a write met is told as what became of the write.
    FailsForCopies,
    /// A write that is too old counts as forgotten, perhaps after it was carried out, although
    /// every earlier copy of it was refused.
    DoubtsRefusals,
    /// A repeat of a write looks the record up afresh, before it looks for its own outcome, and is
    /// told what it finds.
    RepeatLooksAfresh,
    /// Whether what a write finds has expired is judged when its page is asked for, and not when
    /// the write takes place.
    JudgesBeforeThePage,
    /// Whether a record has expired is judged by the timestamp of whoever reads it.
    ExpiryByClients,
    /// The condition of a single-key write holds although a fence has removed what it found.
    ConditionOverFence,
    /// Commands of one pipeline on one key do not wait for each other.
    UnorderedPipelines,
    /// A command goes to its key's queue although its connection has others on the key under way
    /// that are not there.
    HastyFollowers,
    /// Reads of long values that follow other commands are answered at once, whether or not their
    /// client reads.
    BoundlessFollowers,
    /// Reads behind a transaction on their key do not wait for it.
    OvertakenTransactions,
    /// A read may be answered from before an earlier read of its key in the pipeline, which was
    /// refused and is sent again.
    OvertakenReads,
    /// A read may be answered with less than an earlier read of its key in the pipeline, which was
    /// refused and has been sent again.
    OutdatedReads,
    /// Snapshots judge expiry as of their own time, which may lie ahead of the server's.
    SnapshotsExpireAhead,
    /// The answer to a connection's oldest command waits for room like those behind it.
    OldestAnswerWaits,
    /// What is found on devices is served whether its checksums are right or not.
    UncheckedBytes,
    /// A gateway loses an answer now and then.
    LostAnswers,
    /// A store may never take more than it could at its first start.
    ForgottenCapacity,
    /// The record cache has the size of the default, whatever is said.
    ForgottenCache,
    /// EXEC does not look whether a watched key was touched.
    IgnoredWatch,
    /// The manifest is not told when a stage of the server goes on under another client id.
    ForgottenRenewal,
    /// A transaction that has committed is now and then begun again, as one is that met a conflict.
    RepeatedCommits,
    /// Pages of scans lose a key.
    LostScanKeys,
    /// A gateway takes a shard's first page of a range of keys for all of them (docs/design/ordered.md).
    ForgetsRangeEnds,
    /// DBSIZE, KEYS and SCAN leave out what servers have to which the gateway has no connection at
    /// the moment.
    PartialKeyspace,
    /// A gateway dials the servers that had shards when it began, and no others.
    StaleLinks,
    /// What is asked again on a new connection is asked under a new identity.
    RenamedRepeats,
    /// What was asked over a connection that is lost is told as not done.
    FailsWithTheLink,
    /// Counts are of a moment before the command came.
    StaleCounts,
    /// Connections whose peers do not read are owed more and more.
    BoundlessOutput,
    /// Answers are not counted between the batch of frames that brings them to a gateway and the
    /// net stage.
    UncountedPassing,
    /// What the commands of a transaction answer is not bounded.
    BoundlessAnswers,
    /// Commands that touch no key answer for as many names as they are given, and ask for no memory
    /// before.
    BoundlessLocalAnswers,
    /// CONFIG GET takes as many patterns as there are, and they cost its connection nothing of its
    /// turn.
    BoundlessPatterns,
    /// What commands make out of what is there is not counted.
    UncountedMaking,
    /// What commands make may take all of the memory for input, and is alone only beside nothing at
    /// all.
    GreedyMakers,
    /// A transaction that makes more than there is memory for begins again at each of its commands.
    RestartedMakers,
    /// Whoever has waited for memory and then met a conflict waits as long again.
    EndlessWaits,
    /// Clients count as silent for as long as the server itself reads nothing from them.
    BlamedForPauses,
    /// The keys that KEYS finds are not counted.
    UncountedKeys,
    /// Commands that many clients begin and do not finish are bounded for each of them only.
    BoundlessBeginnings,
    /// When a read that is asked for again fails at once, nobody asks again for those behind it.
    SleepingReads,
    /// Silent clients keep what they watch, however scarce memory is.
    SilentWatchers,
    /// All jobs of a gateway may be carried out in one turn.
    BoundlessTurns,
    /// What a gateway has carried out stays counted while anything behind it waits.
    CountedForEver,
    /// A client's clock is believed however far behind it is.
    BelievedLateClocks,
    /// Half-closed connections of Redis clients are cut a quarter of a second after their last
    /// answer.
    CutsHalfClosed,
    /// A gateway that ends waits for clients that read nothing, and for answers that never come.
    EndlessGateway,
    /// A net stage waits for clients that read nothing also when the process ends.
    WaitsForReaders,
    /// A shard that ends waits for whatever waits for a promise of others.
    WaitsForOthers,
    /// A shard closes its store at the end without a look at who may still write.
    ClosesUnderWriters,
    /// Clients that close are waited for like those that fall silent.
    IgnoredClose,
    /// The store in memory does not apply every other delete.
    ForgottenDeletes,
    /// The store in memory does not know after a restart that anything was lost.
    ForgottenMemoryLoss,
    /// The store in memory collects one version of a key too many.
    OneVersionTooFew,
    /// What answers tell of the server's clock was read a while before the requests came that they
    /// answer.
    StaleReading,
    /// Time that follows the servers' steps to what is known of it.
    SteppedServerTime,
    /// What one server says of what time it is counts like what most of them say.
    BelievedLiar,
    /// What an answer tells of its server's clock is measured from the latest copy of its request.
    MeasuresLaterCopies,
    /// `latest_read` is recorded only of keys that have an access record.
    KnownKeysOnly,
    /// A commit of a transaction that was never seen is acknowledged without its writes.
    EmptyWriteSet,
    /// Preparing again at a later timestamp gives up the old promise before the new checks.
    DroppedPromise,
    /// Requests are served before the log was read to its end.
    ServesInRecovery,
    /// Rule 1 tolerates prepared writes above the commit timestamp.
    RelaxedRule1,
    /// Termination commits at its own timestamp without a look at those of others.
    OwnTimestamp,
    /// Snapshots up to the own clock are served when the log has failed and the bound cannot rise.
    ReadBeyondLostLog,
    /// Votes count whoever sent them.
    CountedStrangers,
    /// An answer is not checked against the watermark again.
    UncheckedAnswer,
    /// Who is refused after a restart goes on above what stands for what was lost, however far that
    /// lies ahead of the clock.
    SentIntoFuture,
    /// A scan is not told that a restart has put the watermark ahead of its clock.
    ScanBelowWatermark,
    /// What found nothing, a condition or a read, is outdated where a version is remembered which
    /// nothing is left of.
    AbsencesApart,
    /// A read that found nothing holds wherever nothing is now, whatever was put in between.
    OverlookedPuts,
    /// Timestamps far ahead of the clock are let in.
    TrustedClocks,
    /// A coordinator that hears nothing reports an abort.
    AbortOnTimeout,
    /// A write set that comes late is applied below the watermark.
    WriteBelowWatermark,
    /// A write set that comes late is applied below a watermark that is on its way to the log.
    WriteBelowPledge,
    /// What lies below a watermark that a restart has raised counts as carried out, although
    /// promises may be lost.
    TrustedWatermark,
    /// After a run without a log, the write set of a commit that is unknown is asked for however
    /// old it is.
    TrustedOldDecisions,
    /// After a run without a log, a told abort is not remembered while the write set of its commit
    /// would be asked for.
    UnrecordedAbort,
    /// The same, once nobody is asked for write sets any more.
    ForgottenAborts,
    /// A recovered promise waits for a decision although a peer says that everybody has
    /// acknowledged it.
    WaitsForFinished,
    /// A recovered promise waits for a decision although the store has what it put.
    OverlookedPut,
    /// The watermark propagates only what leads a client's list of kept outcomes.
    PropagatesFirstOnly,
    /// A recovered decision whose promise has left the log does not know whom to tell.
    LostParticipants,
    /// A commit may equal the latest read of a key that it writes.
    EqualIsEnough,
    /// A restart forgets clients beyond the bound that holds while serving, but keeps their
    /// outcomes.
    ForgottenPastClients,
    /// After a restart, nobody knows what single-key writes found, nor why one was refused.
    ForgottenFound,
    /// Who waits for the clocks waits beyond its deadline.
    OutwaitedDeadlines,
    /// A log that nothing is appended to asks shards to copy forward at its opening or never.
    AsksOnce,
    /// What is put at once is noted nowhere but in the store.
    UnnotedPut,
    /// What is put at once counts as put, although there was no room for it.
    PutWithoutRoom,
    /// A gateway that has told the shards that nothing comes any more goes on to take commands.
    TakesLateCommands,
    /// A direct read or write takes no notice of a promise that holds its key.
    DirectUnderPromise,
    /// What was read or put by a call does not move its session on.
    ForgetsCalls,
    /// A put by a call that was given up does not move its session on.
    ForgetsGivenUpCalls,
    /// A loop that has given up its calls looks for the callers of a batch that comes back.
    AnswersAfterItsEnd,
    /// A direct write is noted nowhere but in the store.
    UnnotedDirectPut,
    /// A fence leaves no trace at any key, those included that it has hidden.
    TracelessFences,
    /// The store in memory goes on to serve what a fence has hidden.
    ServesBehindFences,
    /// What waits for peers counts with the bytes that are not written, and not with the buffers
    /// that hold them.
    CountsBytesOnly,
    /// A backup stores and acknowledges batches of an epoch that it has promised to refuse.
    AcceptsOldEpoch,
    /// A backup acknowledges a batch before it is in its log.
    AcksBeforeLog,
    /// A backup takes part in an epoch before the epoch's table is in its log.
    AcksBeforeInstall,
    /// A backup's log lets go of what its store has not made durable.
    CarelessBackup,
    /// A backup forgets outcomes that the primary still keeps.
    ForgetfulBackup,
    /// A primary that is deposed puts what it has promised and what does not count.
    PutsWhenDeposed,
    /// Of two stores on flash, what is durable in one of them is taken for durable in both: batches,
    /// and checkpoints of both.
    StableInOneStore,
    /// A keyspace is kept under another id from when everything was put there, durable or not.
    MovesBeforeDurable,
    /// A keyspace that is moved is kept under an id that an attempt before has used.
    MovesOntoLeftovers,
    /// A store over which another life begins goes on with the batch numbers of the earlier one.
    OldBatchNumbers,
    /// A store answers reads of an earlier life to the next one.
    AnswersEarlierLife,
    /// A checkpoint leaves deletions out.
    CheckpointWithoutTombstones,
    /// A checkpoint has versions, and neither promises nor outcomes.
    CheckpointWithoutState,
    /// A primary goes on with a checkpoint whose taker will lack what is kept no more.
    GivesInVain,
    /// A primary waits for a checkpoint that its taker has ended with another primary's parts.
    WaitsForTakenCheckpoint,
    /// A checkpoint begins before what was written before it counts.
    EarlyCheckpoint,
    /// A replica that has lost its disk answers a candidate as if it had never had anything.
    AnswersAfterLoss,
    /// A replica that has lost what it had counts for no table before it is rebuilt.
    SaysNothingOfLoss,
    /// That a replica has lost what it had counts for a table that rests on the epoch in which it did.
    CountsLossInBase,
    /// A replica that loses what it had once more says that it has nothing since the first time.
    KeepsFirstLoss,
    /// A replica that has given up what it had answers a candidate as if it had never had anything.
    ForgetsWhatItGaveUp,
    /// A replica that gave up what it had takes the checkpoint of a primary that was deposed before.
    RebuildsFromDeposed,
    /// A replica that gives up what it had does not say so in its log.
    GivesUpInSilence,
    /// A replica that has lost its log and its store goes on as if it had never had any.
    ForgetsLostDevices,
    /// A data directory that is an older copy of itself is taken for the latest.
    BelievesOlderCopy,
    /// A restart takes what a replica's log has of lives that it has given up.
    TakesVoidEntries,
    /// A replica that has taken the checkpoint of a candidate still follows an earlier primary.
    StaysInOldEpoch,
    /// A replica that has lost its log does not learn from a checkpoint which leases it may have
    /// granted.
    ForgetsGrants,
    /// A primary counts what a replica had acknowledged before it took a checkpoint.
    CountsEarlierLives,
    /// Batches count from every answer, whatever table it rests on.
    MergesOldTables,
    /// A new primary serves before the table is in its own log.
    ServesWithoutOwnCopy,
    /// A batch counts that the primary itself has not in its log.
    CountsWithoutItself,
    /// A backup carries out what does not count yet.
    AppliesUncounted,
    /// A replica keeps what a table has cut.
    KeepsCutBatches,
    /// A replica leads an epoch that it has promised, although it may have led it before.
    ReissuesEpoch,
    /// The master changes a shard whatever epoch whoever asks believes it to have.
    SwapsWithoutComparing,
    /// A controller confirms a configuration that its primary has installed and does not serve yet.
    ConfirmsInstalled,
    /// A master that goes on from a backup hands out epochs and client ids that servers have seen.
    ReissuesEpochs,
    /// A session does not go on above a write that has taken place, and that it has given up.
    ForgetsUntold,
    /// A primary that lives, and has not heard that it leads, is waited for.
    WaitsForUnaware,
    /// What is done on the way back from a backup makes it look later than what servers have seen.
    CountsWayBack,
    /// A log that once held nothing of a shard counts as empty of it, although it was given batches.
    BelievesOldWord,
    /// A primary with replicas tells what is there now whatever its lease is.
    ReadsAboveLease,
    /// A new primary tells what is there now while earlier ones may answer.
    ReadsUnderOldLease,
    /// A new primary says *yes*, or that it is prepared, while earlier ones may answer.
    VotesUnderOldLease,
    /// Who asks for the end of a transaction takes it for an abort that another shard has forgotten
    /// it.
    TakesForgottenForAborted,
    /// Who has forgotten a transaction does not answer who asks for its end.
    SaysNothingOfForgotten,
    /// A repeat that is too old to be remembered counts as refused.
    TooOldIsNo,
    /// A primary with replicas concludes something from a watermark that does not count yet.
    WatermarkIsLocal,
    /// What a page was read for is told as the present, although the lease has passed meanwhile.
    UncheckedPresent,
    /// A primary with replicas answers calls of its thread's gateway without a look at its lease.
    CallsAboveLease,
    /// A primary closes timestamps up to which it has no lease.
    ClosesAboveLease,
    /// A primary closes timestamps at which something is prepared.
    ClosesOverPrepared,
    /// A primary closes timestamps, and promises writes below them all the same.
    UnnotedClose,
    /// A backup reads at a closed timestamp although it lacks batches that belong to it.
    BackupReadsBehind,
    /// A snapshot that may be old lies below what its session has seen.
    SnapshotsGoBack,
    /// With Centiman's validation: versions above the watermark are taken for older ones.
    CommitsAboveWatermark,
    /// Snapshots begin half a second in the past, whatever is closed while a primary is silent.
    BeginsAboveClosed,
    /// What such a snapshot needs at other shards is not held.
    HoldsNoSnapshot,
    /// Each shard is read at what is closed there, in place of the transaction's snapshot.
    ReadsEachAsClosed,
}
