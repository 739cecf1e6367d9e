// A tour of FoundationDB's API through the unmodified npm package, on the cluster of the given cluster file.
//
// Between the marks `ready` and `go on` (on standard output and input) the test kills a server process.

"use strict";
const assert = require("node:assert");
const fdb = require("foundationdb");

const [clusterFile, version] = process.argv.slice(2);
fdb.setAPIVersion(Number(version));
const raw = fdb.open(clusterFile);
raw.setNativeOptions({ transaction_timeout: 60000 });
const db = raw.withKeyEncoding(fdb.encoders.string).withValueEncoding(fdb.encoders.string);

async function errorOf(action) {
  try {
    await action();
  } catch (error) {
    if (error.code === undefined) throw error;
    return error.code;
  }
  throw new Error("it should have failed");
}

const name = (i) => "row/" + String(i).padStart(5, "0");

async function keysAndRanges() {
  await raw.clearRange(Buffer.alloc(0), Buffer.from([255]));
  await db.set("hello", "world");
  assert.strictEqual(await db.get("hello"), "world");
  assert.strictEqual(await db.get("nothing"), undefined);
  await db.doTn(async (tn) => {
    for (let i = 0; i < 2000; i++) tn.set(name(i), `value ${i}`);
  });
  for (const mode of Object.values(fdb.StreamingMode).filter((mode) => typeof mode === "number" && mode !== 0)) {
    const rows = await db.getRangeAll("row/", "row0", { streamingMode: mode });
    assert.strictEqual(rows.length, 2000);
    assert.strictEqual(rows[7][0], name(7));
  }
  const last = await db.getRangeAll("row/", "row0", { limit: 3, reverse: true });
  assert.deepStrictEqual(last.map(([key]) => key), [1999, 1998, 1997].map(name));
  await db.doTn(async (tn) => {
    assert.strictEqual(await tn.getKey(fdb.keySelector.firstGreaterThan(name(10))), name(11));
    assert.strictEqual(await tn.getKey(fdb.keySelector.add(fdb.keySelector.lastLessThan(name(10)), 5)), name(14));
    assert.strictEqual(await tn.snapshot().get("hello"), "world");
    let batches = 0;
    let rows = 0;
    for await (const batch of tn.getRangeBatch("row/", "row0")) {
      batches += 1;
      rows += batch.length;
    }
    assert.ok(batches > 1);
    assert.strictEqual(rows, 2000);
    assert.ok(await tn.getEstimatedRangeSizeBytes("row/", "row0") > 2000 * 15);
    const points = await tn.getRangeSplitPoints("row/", "row0", 10000);
    assert.ok(points.length > 3 && points.length < 10);
    assert.ok((await tn.getAddressesForKey("row/")).length > 0);
  });
}

async function writesAndConflicts() {
  await db.doTn(async (tn) => {
    tn.set(name(0), "mine");
    tn.clearRange(name(1), name(3));
    const rows = await tn.getRangeAll("row/", "row0", { limit: 2 });
    assert.deepStrictEqual(rows.map(([key]) => key), [name(0), name(3)]);
    tn.addReadConflictKey("unread");
    tn.addWriteConflictRange("u", "v");
    assert.ok(tn.getApproximateSize instanceof Function && (await tn.getApproximateSize()) > 0);
  });
  const first = db.rawCreateTransaction();
  const second = db.rawCreateTransaction();
  await Promise.all([first.get("hello"), second.get("hello")]);
  first.set("hello", "first");
  second.set("other", "second");
  await first.rawCommit();
  assert.strictEqual(await errorOf(() => second.rawCommit()), 1020);
  await second.rawOnError(1020);
  assert.strictEqual(await errorOf(() => second.rawOnError(2000)), 2000);
  const cancelled = db.rawCreateTransaction();
  cancelled.rawCancel();
  assert.strictEqual(await errorOf(() => cancelled.get("hello")), 1025);

  const adds = Array.from({ length: 400 }, () => raw.add("count", Buffer.from([1, 0, 0, 0, 0, 0, 0, 0])));
  await Promise.all(adds);
  assert.strictEqual((await raw.get("count")).readUInt32LE(0), 400);
  await raw.doTn(async (tn) => {
    tn.max("most", Buffer.from([7]));
    tn.bitOr("most", Buffer.from([8]));
    tn.byteMin("most", Buffer.from([15]));
  });
  assert.deepStrictEqual(await raw.get("most"), Buffer.from([15]));
}

async function stampsAndWatches() {
  const tuples = db.withKeyEncoding(fdb.encoders.tuple);
  const stamp = await (await tuples.doTn(async (tn) => {
    tn.setVersionstampedKey(["log", fdb.tuple.unboundVersionstamp()], "entry");
    return tn.getVersionstamp();
  })).promise;
  const [[key]] = await tuples.getRangeAll(["log"]);
  assert.deepStrictEqual(key[1].value.subarray(0, 10), stamp);

  const watch = await db.getAndWatch("hello");
  await db.set("hello", "again");
  assert.strictEqual(await watch.promise, true);
  const unchanged = await db.getAndWatch("hello");
  unchanged.cancel();
  assert.strictEqual(await unchanged.promise, false);
}

async function layersAndLimits() {
  const directory = await fdb.directory.createOrOpen(raw, ["tour", "a"]);
  await raw.at(directory).set("k", "in a directory");
  assert.ok((await raw.get(Buffer.concat([directory.content.prefix, Buffer.from("k")]))) !== undefined);
  await fdb.directory.move(raw, ["tour", "a"], ["tour", "b"]);
  const names = (await fdb.directory.listAll(raw, ["tour"])).map(String);
  assert.deepStrictEqual(names, ["b"]);
  await fdb.directory.remove(raw, ["tour"]);
  assert.ok(!(await fdb.directory.exists(raw, ["tour"])));

  assert.strictEqual(await errorOf(() => db.set("k".repeat(10001), "")), 2102);
  assert.strictEqual(await errorOf(() => db.set("k", "v".repeat(100001))), 2103);
  assert.strictEqual(await errorOf(() => raw.set(Buffer.from([255, 1]), "")), 2004);
  assert.strictEqual(await errorOf(() => db.getRangeAll("a", "b", { streamingMode: fdb.StreamingMode.Exact })), 2210);
  const old = db.rawCreateTransaction();
  old.setReadVersion(Buffer.from([0, 0, 0, 0, 0, 0, 0, 1]));
  assert.ok([1007, undefined].includes(await errorOf(() => old.get("hello")).catch(() => undefined)));
  const hurried = db.rawCreateTransaction({ timeout: 1 });
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.strictEqual(await errorOf(() => hurried.get("hello")), 1031);
}

async function streams() {
  const special = (name) => Buffer.from("\xff\xff/" + name, "latin1");
  const entries = (name) => raw.getRangeAll(special(`streams/${name}/`), special(`streams/${name}0`));
  await db.set("stream/a", "1");
  await db.clearRange("stream/a", "streams and more");
  const rows = (await entries("tour")).slice(-2);
  const changes = rows.flatMap(([, value]) => fdb.tuple.unpack(value)).map(([kind, ...keys]) => [kind, ...keys.map(String)]);
  assert.deepStrictEqual(changes, [[0, "stream/a", "1"], [1, "stream/a", "stream0"]]);
  const consumer = special("stream_consumers/tour/node");
  const position = rows[1][0].subarray(-12);
  await raw.doTn(async (tn) => {
    tn.set(special("stream_append/log"), "noted");
    tn.set(consumer, position);
  }, { special_key_space_enable_writes: true });
  assert.deepStrictEqual(await raw.get(consumer), position);
  const log = await entries("log");
  assert.deepStrictEqual(log.map(([, value]) => String(value)), ["noted"]);
}

async function inFlightWhileAServerDies() {
  console.log("ready");
  await new Promise((resolve) => process.stdin.once("data", resolve));
  await Promise.all(Array.from({ length: 1000 }, (_, i) => db.set(`flight/${i}`, "1")));
  assert.strictEqual((await db.getRangeAll("flight/", "flight0")).length, 1000);
}

(async () => {
  await keysAndRanges();
  await writesAndConflicts();
  await stampsAndWatches();
  await layersAndLimits();
  await streams();
  await inFlightWhileAServerDies();
  process.stdout.write("done\n", () => {
    raw.close();
    fdb.stopNetworkSync();
    process.exit(0);
  });
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
