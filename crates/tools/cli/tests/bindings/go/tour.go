// A tour of FoundationDB's API through the unmodified Go module, on the cluster of the given cluster file.
//
// Between the marks `ready` and `go on` (on standard output and input) the test kills a server process.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/directory"
	"github.com/apple/foundationdb/bindings/go/src/fdb/tuple"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func assert(holds bool, what ...any) {
	if !holds {
		panic(fmt.Sprint(what...))
	}
}

func codeOf(err error) int {
	var failure fdb.Error
	assert(errors.As(err, &failure), "an error was expected, not ", err)
	return failure.Code
}

func transact(db fdb.Database, body func(tr fdb.Transaction)) {
	_, err := db.Transact(func(tr fdb.Transaction) (any, error) {
		body(tr)
		return nil, nil
	})
	check(err)
}

func create(db fdb.Database) fdb.Transaction {
	tr, err := db.CreateTransaction()
	check(err)
	return tr
}

func row(i int) fdb.Key { return fdb.Key(fmt.Sprintf("row/%05d", i)) }

var rows = fdb.KeyRange{Begin: fdb.Key("row/"), End: fdb.Key("row0")}

func keysAndRanges(db fdb.Database) {
	transact(db, func(tr fdb.Transaction) {
		tr.ClearRange(fdb.KeyRange{Begin: fdb.Key(""), End: fdb.Key{0xff}})
		tr.Set(fdb.Key("hello"), []byte("world"))
		for i := 0; i < 2000; i++ {
			tr.Set(row(i), []byte(fmt.Sprint("value ", i)))
		}
	})
	transact(db, func(tr fdb.Transaction) {
		assert(string(tr.Get(fdb.Key("hello")).MustGet()) == "world")
		assert(tr.Get(fdb.Key("nothing")).MustGet() == nil)
		for _, mode := range []fdb.StreamingMode{
			fdb.StreamingModeWantAll, fdb.StreamingModeIterator, fdb.StreamingModeSmall,
			fdb.StreamingModeMedium, fdb.StreamingModeLarge, fdb.StreamingModeSerial,
		} {
			found := tr.GetRange(rows, fdb.RangeOptions{Mode: mode}).GetSliceOrPanic()
			assert(len(found) == 2000 && bytes.Equal(found[7].Key, row(7)), mode)
		}
		_, err := tr.GetRange(rows, fdb.RangeOptions{Mode: fdb.StreamingModeExact}).GetSliceWithError()
		assert(codeOf(err) == 2210)
		last := tr.GetRange(rows, fdb.RangeOptions{Limit: 3, Reverse: true}).GetSliceOrPanic()
		assert(len(last) == 3 && bytes.Equal(last[0].Key, row(1999)))
		iterator, count := tr.Snapshot().GetRange(rows, fdb.RangeOptions{}).Iterator(), 0
		for iterator.Advance() {
			iterator.MustGet()
			count++
		}
		assert(count == 2000)
		assert(bytes.Equal(tr.GetKey(fdb.FirstGreaterThan(row(10))).MustGet(), row(11)))
		selector := fdb.KeySelector{Key: row(10), OrEqual: false, Offset: 5}
		assert(bytes.Equal(tr.GetKey(selector).MustGet(), row(14)))
		assert(len(tr.LocalityGetAddressesForKey(row(0)).MustGet()) > 0)
		assert(tr.GetEstimatedRangeSizeBytes(rows).MustGet() > 2000*15)
		points := tr.GetRangeSplitPoints(rows, 10000).MustGet()
		assert(len(points) > 3 && len(points) < 10)
	})
}

func writesAndConflicts(db fdb.Database) {
	tr := create(db)
	tr.Set(row(0), []byte("mine"))
	tr.ClearRange(fdb.KeyRange{Begin: row(1), End: row(3)})
	found := tr.GetRange(rows, fdb.RangeOptions{Limit: 2}).GetSliceOrPanic()
	assert(bytes.Equal(found[0].Key, row(0)) && bytes.Equal(found[1].Key, row(3)))
	assert(tr.GetApproximateSize().MustGet() > 0)
	tr.Cancel()
	_, err := tr.Get(row(0)).Get()
	assert(codeOf(err) == 1025)

	first, second := create(db), create(db)
	first.Get(fdb.Key("hello")).MustGet()
	second.Get(fdb.Key("hello")).MustGet()
	check(first.AddWriteConflictKey(fdb.Key("hello")))
	check(second.Options().SetReportConflictingKeys())
	second.Set(fdb.Key("b"), nil)
	check(first.Commit().Get())
	committed, err := first.GetCommittedVersion()
	check(err)
	assert(committed > 0)
	assert(codeOf(second.Commit().Get()) == 1020)
	special := fdb.KeyRange{
		Begin: fdb.Key("\xff\xff/transaction/conflicting_keys/"),
		End:   fdb.Key("\xff\xff/transaction/conflicting_keys0"),
	}
	conflicts := second.GetRange(special, fdb.RangeOptions{}).GetSliceOrPanic()
	assert(len(conflicts) == 2 && bytes.HasSuffix(conflicts[0].Key, []byte("/hello")), conflicts)
	check(second.OnError(fdb.Error{Code: 1020}).Get())
	assert(codeOf(second.OnError(fdb.Error{Code: 2000}).Get()) == 2000)

	one := make([]byte, 8)
	one[0] = 1
	var adding sync.WaitGroup
	for i := 0; i < 8; i++ {
		adding.Add(1)
		go func() {
			defer adding.Done()
			for j := 0; j < 50; j++ {
				transact(db, func(tr fdb.Transaction) {
					tr.Add(fdb.Key("count"), one)
					tr.Max(fdb.Key("most"), []byte{7})
				})
			}
		}()
	}
	adding.Wait()
	transact(db, func(tr fdb.Transaction) {
		assert(binary.LittleEndian.Uint64(tr.Get(fdb.Key("count")).MustGet()) == 400)
		assert(bytes.Equal(tr.Get(fdb.Key("most")).MustGet(), []byte{7}))
	})
}

func stampsAndWatches(db fdb.Database) {
	tr := create(db)
	key, err := tuple.Tuple{"log", tuple.IncompleteVersionstamp(3)}.PackWithVersionstamp(nil)
	check(err)
	tr.SetVersionstampedKey(fdb.Key(key), []byte("entry"))
	stamp := tr.GetVersionstamp()
	check(tr.Commit().Get())
	transact(db, func(tr fdb.Transaction) {
		entries := tr.GetRange(tuple.Tuple{"log"}, fdb.RangeOptions{}).GetSliceOrPanic()
		unpacked, err := tuple.Unpack(entries[0].Key)
		check(err)
		found := unpacked[1].(tuple.Versionstamp)
		assert(bytes.Equal(found.TransactionVersion[:], stamp.MustGet()) && found.UserVersion == 3)
	})

	tr = create(db)
	changed := tr.Watch(fdb.Key("hello"))
	check(tr.Commit().Get())
	assert(!changed.IsReady())
	transact(db, func(tr fdb.Transaction) { tr.Set(fdb.Key("hello"), []byte("again")) })
	changed.MustGet()
	tr = create(db)
	unchanged := tr.Watch(fdb.Key("hello"))
	check(tr.Commit().Get())
	unchanged.Cancel()
	assert(codeOf(unchanged.Get()) == 1101)
}

func layersAndTenants(db fdb.Database) {
	made, err := directory.CreateOrOpen(db, []string{"tour", "a"}, nil)
	check(err)
	key := made.Pack(tuple.Tuple{int64(1), "x", nil, -5.5})
	transact(db, func(tr fdb.Transaction) { tr.Set(key, []byte("in a directory")) })
	back, err := made.Unpack(key)
	check(err)
	assert(back[1] == "x" && back[3] == -5.5)
	_, err = directory.Move(db, []string{"tour", "a"}, []string{"tour", "b"})
	check(err)
	names, err := directory.List(db, []string{"tour"})
	check(err)
	assert(len(names) == 1 && names[0] == "b")
	_, err = directory.Root().Remove(db, []string{"tour"})
	check(err)

	name := fdb.Key("tour")
	check(db.CreateTenant(name))
	assert(codeOf(db.CreateTenant(name)) == 2132)
	tenant, err := db.OpenTenant(name)
	check(err)
	_, err = tenant.Transact(func(tr fdb.Transaction) (any, error) {
		tr.Set(fdb.Key("hello"), []byte("tenant"))
		return nil, nil
	})
	check(err)
	transact(db, func(tr fdb.Transaction) { assert(string(tr.Get(fdb.Key("hello")).MustGet()) == "again") })
	assert(codeOf(db.DeleteTenant(name)) == 2133)
	_, err = tenant.Transact(func(tr fdb.Transaction) (any, error) {
		tr.Clear(fdb.Key("hello"))
		return nil, nil
	})
	check(err)
	check(db.DeleteTenant(name))
	assert(codeOf(db.DeleteTenant(name)) == 2131)
}

func limits(db fdb.Database) {
	commits := func(write func(tr fdb.Transaction)) int {
		tr := create(db)
		write(tr)
		return codeOf(tr.Commit().Get())
	}
	long := func(n int) []byte { return bytes.Repeat([]byte("k"), n) }
	assert(commits(func(tr fdb.Transaction) { tr.Set(fdb.Key(long(10001)), nil) }) == 2102)
	assert(commits(func(tr fdb.Transaction) { tr.Set(fdb.Key("k"), long(100001)) }) == 2103)
	assert(commits(func(tr fdb.Transaction) { tr.Set(fdb.Key("\xff/not ours"), nil) }) == 2004)
	assert(commits(func(tr fdb.Transaction) {
		for i := 0; i < 120; i++ {
			tr.Set(row(i), long(100000))
		}
	}) == 2101)
	hurried := create(db)
	check(hurried.Options().SetTimeout(1))
	time.Sleep(20 * time.Millisecond)
	_, err := hurried.Get(fdb.Key("hello")).Get()
	assert(codeOf(err) == 1031)
}

func streams(db fdb.Database) {
	entries := func(name string) []fdb.KeyValue {
		prefix := "\xff\xff/streams/" + name
		all := fdb.KeyRange{Begin: fdb.Key(prefix + "/"), End: fdb.Key(prefix + "0")}
		var found []fdb.KeyValue
		transact(db, func(tr fdb.Transaction) { found = tr.GetRange(all, fdb.RangeOptions{}).GetSliceOrPanic() })
		return found
	}
	transact(db, func(tr fdb.Transaction) { tr.Set(fdb.Key("stream/a"), []byte("1")) })
	transact(db, func(tr fdb.Transaction) {
		tr.ClearRange(fdb.KeyRange{Begin: fdb.Key("stream/a"), End: fdb.Key("streams and more")})
	})
	rows := entries("tour")
	last := rows[len(rows)-1]
	changes, err := tuple.Unpack(last.Value)
	check(err)
	clear := changes[0].(tuple.Tuple)
	assert(clear[0] == int64(1) && string(clear[1].([]byte)) == "stream/a" && string(clear[2].([]byte)) == "stream0")
	position := []byte(last.Key[len(last.Key)-12:])
	consumer := fdb.Key("\xff\xff/stream_consumers/tour/go")
	transact(db, func(tr fdb.Transaction) {
		check(tr.Options().SetSpecialKeySpaceEnableWrites())
		tr.Set(fdb.Key("\xff\xff/stream_append/log"), []byte("noted"))
		tr.Set(consumer, position)
	})
	transact(db, func(tr fdb.Transaction) { assert(bytes.Equal(tr.Get(consumer).MustGet(), position)) })
	log := entries("log")
	assert(len(log) == 1 && string(log[0].Value) == "noted")
}

func inFlightWhileAServerDies(db fdb.Database) {
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	var flying sync.WaitGroup
	for i := 0; i < 1000; i++ {
		flying.Add(1)
		// Debian's Go has one variable for all rounds of a loop.
		go func(i int) {
			defer flying.Done()
			transact(db, func(tr fdb.Transaction) { tr.Set(fdb.Key(fmt.Sprintf("flight/%04d", i)), nil) })
		}(i)
	}
	flying.Wait()
	transact(db, func(tr fdb.Transaction) {
		all := fdb.KeyRange{Begin: fdb.Key("flight/"), End: fdb.Key("flight0")}
		assert(len(tr.GetRange(all, fdb.RangeOptions{}).GetSliceOrPanic()) == 1000)
	})
}

func main() {
	version, err := strconv.Atoi(os.Args[2])
	check(err)
	fdb.MustAPIVersion(version)
	db, err := fdb.OpenDatabase(os.Args[1])
	check(err)
	check(db.Options().SetTransactionTimeout(60000))
	keysAndRanges(db)
	writesAndConflicts(db)
	stampsAndWatches(db)
	layersAndTenants(db)
	limits(db)
	streams(db)
	inFlightWhileAServerDies(db)
	fmt.Println("done")
}
