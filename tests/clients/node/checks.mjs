// What the two programs of this folder share: the list of checks, what a check may say, and how they are run.
//
// Every check starts on an empty database and prints `ok NAME` or `FAILED NAME: why`; `end` comes last. See ../README.md.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

export const [host, port] = [process.argv[2], Number(process.argv[3])];
export const onRedis = process.env.CLIENTS_SERVER === "redis";
export const equal = assert.deepEqual;

export function between(low, found, high) {
  assert.ok(low <= found && found <= high, `expected ${low} to ${high}, found ${found}`);
}

export async function fails(words, promise) {
  await assert.rejects(promise, (error) => {
    assert.ok(String(error.message).includes(words), `expected an error with "${words}", found "${error.message}"`);
    return true;
  });
}

// Waits until `exists` says 0.
export async function gone(exists) {
  const deadline = Date.now() + 5000;
  while ((await exists()) > 0) {
    assert.ok(Date.now() < deadline, "the key is still there after 5 s");
    await sleep(10);
  }
}

// Runs the checks one by one, each on an empty database.
export async function run(checks, flush) {
  let failures = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await flush();
      await check();
      console.log(`ok ${name}`);
    } catch (error) {
      failures += 1;
      const where = String(error.stack).split("\n").find((line) => line.includes(".mjs:")) ?? "";
      console.log(`FAILED ${name}: ${String(error.message).replaceAll("\n", " ")} ${where.trim()}`);
    }
  }
  console.log("end");
  return failures === 0 ? 0 : 1;
}
