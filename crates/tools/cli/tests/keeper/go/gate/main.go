// gate CONFIG - listens at the client port of a zoo.cfg, and passes bytes on to the server at OUTSIDE_SERVER.
//
// Tests that start servers of their own start gates instead: a gate that is killed looks like a server that is killed.
// The first gate of a test's cluster empties the server, because each test expects a new one.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// The client reads no date of a server newer than 3.5, and its tests ask by this whether a server is there.
var version = regexp.MustCompile(`(?m)^Zookeeper version: .*$`)

func main() {
	if err := run(os.Args[1], os.Getenv("OUTSIDE_SERVER")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(config, server string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	settings := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if name, value, found := strings.Cut(line, "="); found {
			settings[name] = value
		}
	}
	// A gate that is started again, or the second of three, finds the mark of the first.
	if os.Mkdir(filepath.Join(settings["dataDir"], "..", "emptied"), 0700) == nil {
		if err := empty(server); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+settings["clientPort"])
	if err != nil {
		return err
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go pass(client, server)
	}
}

func pass(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	word := make([]byte, 4)
	if _, err := io.ReadFull(client, word); err != nil {
		server.Close()
		return
	}
	server.Write(word)
	if string(word) == "srvr" {
		answer, _ := io.ReadAll(server)
		client.Write(version.ReplaceAll(answer, []byte("Zookeeper version: 3, built on 01/01/2024 00:00 GMT")))
		server.Close()
		return
	}
	done := make(chan struct{}, 2)
	carry := func(to, from net.Conn) {
		io.Copy(to, from)
		to.(*net.TCPConn).CloseWrite()
		done <- struct{}{}
	}
	go carry(server, client)
	go carry(client, server)
	<-done
	// A server that hangs up after the last answer has said everything; a client that hangs up wants no more.
	server.Close()
}

// empty deletes everything but ZooKeeper's own nodes.
func empty(server string) error {
	connection, _, err := zk.Connect([]string{server}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer connection.Close()
	// Some tests leave nodes that only their makers may touch.
	if err := connection.AddAuth("digest", []byte("super:test")); err != nil {
		return err
	}
	return emptyBelow(connection, "/")
}

func emptyBelow(connection *zk.Conn, path string) error {
	names, _, err := connection.Children(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		below := strings.TrimSuffix(path, "/") + "/" + name
		if below == "/zookeeper" {
			continue
		}
		if err := emptyBelow(connection, below); err != nil && err != zk.ErrNoNode {
			return fmt.Errorf("%s: %w", below, err)
		}
		if err := connection.Delete(below, -1); err != nil && err != zk.ErrNoNode {
			return fmt.Errorf("%s: %w", below, err)
		}
	}
	return nil
}
