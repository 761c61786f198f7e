//! Bounds of the I/O floor.

use core::time::Duration;

/// Most operations that one engine may have in flight; bounds the ring's memory (64 B + 16 B × 2 an
/// entry) and the slots.
pub const MAX_DEPTH: u32 = 4096;
/// Operations in flight where the caller has no wish of its own: the device is saturated from about
/// 64 on (4 KiB reads).
pub const DEFAULT_DEPTH: u32 = 128;
/// Threads of the fallback engine: enough to keep several reads in flight, few enough to cost
/// nothing when idle.
pub const FALLBACK_THREADS: u32 = 8;
/// Most buffers of one vectored write; the kernel's own bound (`UIO_MAXIOV`) is 1024.
pub const MAX_VECTORS: usize = 256;
/// Bytes of one write while a file is being filled with zeros: large enough for full bandwidth
/// (docs/lab/building-blocks.md).
pub const ZERO_FILL_BYTES: usize = 1024 * 1024;
/// Longest transfer of one operation: the kernel cuts longer ones (`MAX_RW_COUNT`), and `i32`
/// results must hold it.
pub const MAX_TRANSFER_BYTES: usize = 1 << 30;
/// How long a lock is waited for: a killed process's last operations are over within milliseconds,
/// on a slow disk within a second.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a lock that is waited for is tried.
pub const LOCK_RETRY: Duration = Duration::from_millis(2);

/// The unit in which the kernel counts bytes of block devices, whatever their own unit is.
pub const LINUX_SECTOR_BYTES: u64 = 512;
/// Zones that are asked for at once: 16 KiB a report.
pub const ZONES_PER_REPORT: usize = 256;
/// Threads that carry out zone commands beside a ring: a device works on several, and none of them
/// is urgent.
pub const ZONE_THREADS: u32 = 2;

const _: () = assert!(ZERO_FILL_BYTES.is_multiple_of(crate::ALIGNMENT));
const _: () = assert!(MAX_VECTORS <= 1024);
const _: () = assert!(MAX_TRANSFER_BYTES < i32::MAX as usize);
const _: () = assert!(DEFAULT_DEPTH <= MAX_DEPTH);
