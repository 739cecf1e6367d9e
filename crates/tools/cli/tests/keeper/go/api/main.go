// api HOST:PORT - the Go client over its whole interface, with every answer checked.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

var (
	server string
	base   = fmt.Sprintf("/api-%d", time.Now().UnixNano())
	open   = zk.WorldACL(zk.PermAll)
)

// wrong is what a check panics with; main says it and ends.
type wrong string

func check(condition bool, format string, arguments ...interface{}) {
	if !condition {
		panic(wrong(fmt.Sprintf(format, arguments...)))
	}
}

func good(err error) {
	if err != nil {
		panic(wrong(err.Error()))
	}
}

func fails(err, expected error) {
	check(errors.Is(err, expected), "expected %v, not %v", expected, err)
}

func connect() *zk.Conn {
	connection, events, err := zk.Connect([]string{server}, 10*time.Second, zk.WithLogInfo(false))
	good(err)
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	go func() {
		for range events {
		}
	}()
	return connection
}

func next(events <-chan zk.Event) zk.Event {
	select {
	case event := <-events:
		good(event.Err)
		return event
	case <-time.After(5 * time.Second):
		panic(wrong("no event"))
	}
}

func nothing(events <-chan zk.Event) {
	select {
	case event := <-events:
		panic(wrong(fmt.Sprintf("an event that nobody caused: %+v", event)))
	default:
	}
}

func nodes(c *zk.Conn) {
	path, err := c.Create(base+"/node", []byte("one"), 0, open)
	good(err)
	check(path == base+"/node", "created %s", path)
	_, err = c.Create(path, nil, 0, open)
	fails(err, zk.ErrNodeExists)
	_, err = c.Create(base+"/no/parent", nil, 0, open)
	fails(err, zk.ErrNoNode)
	data, stat, err := c.Get(path)
	good(err)
	check(string(data) == "one" && stat.Version == 0 && stat.DataLength == 3, "got %q %+v", data, stat)
	check(stat.Czxid == stat.Mzxid && stat.Czxid == stat.Pzxid && stat.Ctime == stat.Mtime, "a new node: %+v", stat)
	_, err = c.Set(path, []byte("x"), 7)
	fails(err, zk.ErrBadVersion)
	changed, err := c.Set(path, []byte("three"), 0)
	good(err)
	check(changed.Version == 1 && changed.Mzxid > stat.Mzxid && changed.Czxid == stat.Czxid, "changed %+v", changed)
	found, seen, err := c.Exists(path)
	good(err)
	check(found && *seen == *changed, "exists %+v, changed %+v", seen, changed)
	for _, name := range []string{"c", "a", "b"} {
		_, err = c.Create(path+"/"+name, nil, 0, open)
		good(err)
	}
	names, stat, err := c.Children(path)
	good(err)
	sort.Strings(names)
	check(strings.Join(names, "") == "abc" && stat.NumChildren == 3 && stat.Cversion == 3, "children %v %+v", names, stat)
	fails(c.Delete(path, -1), zk.ErrNotEmpty)
	for _, name := range names {
		good(c.Delete(path+"/"+name, 0))
	}
	fails(c.Delete(path, 0), zk.ErrBadVersion)
	good(c.Delete(path, 1))
	fails(c.Delete(path, -1), zk.ErrNoNode)
	found, _, err = c.Exists(path)
	good(err)
	check(!found, "it is deleted")
	synced, err := c.Sync(base)
	good(err)
	check(synced == base, "synced %s", synced)
}

func kinds(c *zk.Conn) {
	for number := 0; number < 3; number++ {
		path, err := c.Create(base+"/numbered-", nil, zk.FlagSequence, open)
		good(err)
		check(path == fmt.Sprintf("%s/numbered-%010d", base, number+1), "sequence %d: %s", number, path)
	}
	protected, err := c.CreateProtectedEphemeralSequential(base+"/protected-", nil, open)
	good(err)
	check(strings.HasPrefix(protected, base+"/_c_"), "protected: %s", protected)
	container, err := c.CreateContainer(base+"/container", []byte("c"), zk.FlagContainer, open)
	good(err)
	_, stat, err := c.Get(container)
	good(err)
	check(stat.EphemeralOwner == 0, "a container: %+v", stat)
	timed, err := c.CreateTTL(base+"/timed", []byte("t"), zk.FlagTTL, open, time.Hour)
	good(err)
	_, stat, err = c.Get(timed)
	good(err)
	check(stat.EphemeralOwner == 0, "a time to live: %+v", stat)

	other := connect()
	fleeting, err := other.Create(base+"/fleeting", nil, zk.FlagEphemeral, open)
	good(err)
	_, stat, gone, err := c.ExistsW(fleeting)
	good(err)
	check(stat.EphemeralOwner == other.SessionID(), "whose is it: %x, %x", stat.EphemeralOwner, other.SessionID())
	_, err = other.Create(fleeting+"/child", nil, 0, open)
	fails(err, zk.ErrNoChildrenForEphemerals)
	other.Close()
	event := next(gone)
	check(event.Type == zk.EventNodeDeleted && event.Path == fleeting, "%+v", event)
}

func watches(c *zk.Conn) {
	path := base + "/watched"
	other := connect()
	defer other.Close()
	_, _, created, err := c.ExistsW(path)
	good(err)
	_, _, children, err := c.ChildrenW(base)
	good(err)
	_, err = other.Create(path, nil, 0, open)
	good(err)
	check(next(created).Type == zk.EventNodeCreated, "created")
	check(next(children).Type == zk.EventNodeChildrenChanged, "children changed")
	_, _, changed, err := c.GetW(path)
	good(err)
	_, _, below, err := c.ChildrenW(path)
	good(err)
	_, err = other.Set(path, []byte("new"), -1)
	good(err)
	check(next(changed).Type == zk.EventNodeDataChanged, "changed")
	_, _, err = c.Get(path)
	good(err)
	nothing(below)
	good(other.Delete(path, -1))
	check(next(below).Type == zk.EventNodeDeleted, "deleted")
	_, _, _, err = c.GetW(path)
	fails(err, zk.ErrNoNode)
}

func many(c *zk.Conn) {
	path := base + "/many"
	answers, err := c.Multi(
		&zk.CreateRequest{Path: path, Data: []byte("m"), Acl: open},
		&zk.CreateRequest{Path: path + "/n-", Acl: open, Flags: zk.FlagSequence},
		&zk.SetDataRequest{Path: path, Data: []byte("n"), Version: 0},
		&zk.CheckVersionRequest{Path: path, Version: 1},
		&zk.DeleteRequest{Path: path + "/n-0000000000", Version: -1},
	)
	good(err)
	check(len(answers) == 5 && answers[0].String == path && answers[1].String == path+"/n-0000000000", "%+v", answers)
	check(answers[2].Stat.Version == 1, "%+v", answers[2].Stat)
	answers, err = c.Multi(
		&zk.SetDataRequest{Path: path, Data: []byte("o"), Version: -1},
		&zk.CheckVersionRequest{Path: path, Version: 9},
		&zk.DeleteRequest{Path: path, Version: -1},
	)
	fails(err, zk.ErrBadVersion)
	check(len(answers) == 3 && answers[0].Error == nil && answers[1].Error == zk.ErrBadVersion, "%+v", answers)
	data, _, err := c.Get(path)
	good(err)
	check(string(data) == "n", "a part of a failed request was done: %q", data)
}

func permissions(c *zk.Conn) {
	path := base + "/guarded"
	_, err := c.Create(path, []byte("secret"), 0, zk.DigestACL(zk.PermAll, "user", "password"))
	good(err)
	_, _, err = c.Get(path)
	fails(err, zk.ErrNoAuth)
	_, _, err = c.GetACL(path)
	fails(err, zk.ErrNoAuth)
	fails(c.AddAuth("nothing", []byte("x")), zk.ErrAuthFailed)

	other := connect()
	defer other.Close()
	good(other.AddAuth("digest", []byte("user:password")))
	data, _, err := other.Get(path)
	good(err)
	check(string(data) == "secret", "got %q", data)
	stat, err := other.SetACL(path, append(zk.WorldACL(zk.PermRead), zk.AuthACL(zk.PermAll)...), 0)
	good(err)
	check(stat.Aversion == 1, "%+v", stat)
	list, _, err := c.GetACL(path)
	good(err)
	check(len(list) == 2 && list[0].Scheme == "world" && list[1].Scheme == "digest", "%+v", list)
	_, err = c.Set(path, nil, -1)
	fails(err, zk.ErrNoAuth)
	_, err = c.Create(base+"/nobody's", nil, 0, zk.AuthACL(zk.PermAll))
	fails(err, zk.ErrInvalidACL)
}

func large(c *zk.Conn) {
	path := base + "/large"
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16-8)
	_, err := c.Create(path, data, 0, open)
	good(err)
	got, _, err := c.Get(path)
	good(err)
	check(bytes.Equal(data, got), "%d bytes came back as %d", len(data), len(got))
}

// locks lets eight sessions count under one lock. Without it, some would overwrite others.
func locks(c *zk.Conn) {
	counter := base + "/counter"
	_, err := c.Create(counter, nil, 0, open)
	good(err)
	var group sync.WaitGroup
	trouble := make(chan interface{}, 8)
	for worker := 0; worker < 8; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			defer func() {
				if found := recover(); found != nil {
					trouble <- found
				}
			}()
			mine := connect()
			defer mine.Close()
			lock := zk.NewLock(mine, base+"/lock", open)
			for round := 0; round < 5; round++ {
				good(lock.Lock())
				data, _, err := mine.Get(counter)
				good(err)
				_, err = mine.Set(counter, append(data, '1'), -1)
				good(err)
				good(lock.Unlock())
			}
		}()
	}
	group.Wait()
	select {
	case found := <-trouble:
		panic(found)
	default:
	}
	data, _, err := c.Get(counter)
	good(err)
	check(len(data) == 40, "40 additions under a lock made %d", len(data))
}

// pipelined sends from many goroutines over one connection: each has to get the answer to its own request.
func pipelined(c *zk.Conn) {
	var group sync.WaitGroup
	trouble := make(chan interface{}, 50)
	for worker := 0; worker < 50; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			defer func() {
				if found := recover(); found != nil {
					trouble <- found
				}
			}()
			path := fmt.Sprintf("%s/worker-%d", base, worker)
			for round := 0; round < 20; round++ {
				_, err := c.Create(path, []byte(path), 0, open)
				good(err)
				data, _, err := c.Get(path)
				good(err)
				check(string(data) == path, "%s got %q", path, data)
				good(c.Delete(path, 0))
			}
		}(worker)
	}
	group.Wait()
	select {
	case found := <-trouble:
		panic(found)
	default:
	}
}

func main() {
	server = os.Args[1]
	defer func() {
		if found := recover(); found != nil {
			if message, ours := found.(wrong); ours {
				fmt.Fprintln(os.Stderr, "api:", string(message))
				os.Exit(1)
			}
			panic(found)
		}
	}()
	c := connect()
	_, err := c.Create(base, nil, 0, open)
	good(err)
	for _, part := range []func(*zk.Conn){nodes, kinds, watches, many, large, locks, pipelined} {
		part(c)
	}
	c.Close()
	// A login that is refused ends its connection.
	permissions(connect())
	fmt.Println("the Go client got every answer that it should")
}
