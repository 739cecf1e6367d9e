#!/bin/sh
# zkServer.sh start-foreground CONFIG - what tests of the Go client run as their server: a gate to the server that they meet.
#
# A test that stops its server waits until nobody holds the server's output any more. A companion holds it a moment
# longer than the gate lives, as the end of a real server takes a moment. For TestIntegration_DNSHostProviderReconnect
# sends a request right after that, and takes for granted that its connection has seen the end by then.
while kill -0 $$ 2>/dev/null; do
    sleep 0.05
done && sleep 0.2 &
exec "$KEEPER_GATE" "$2"
