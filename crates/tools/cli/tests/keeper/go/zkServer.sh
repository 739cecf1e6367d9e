#!/bin/sh
# zkServer.sh start-foreground CONFIG - what tests of the Go client run as their server: a gate to the server that they meet.
exec "$KEEPER_GATE" "$2"
