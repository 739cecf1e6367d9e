// Checks histories of single-key registers for linearizability with Porcupine.
//
// Standard input: one JSON object per line, {"client", "key", "kind": "r" or "w", "value", "call", "return"}; times in
// nanoseconds of one clock. A write without "return" may have happened at any time after its call, or not at all.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Client int    `json:"client"`
	Key    string `json:"key"`
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Call   int64  `json:"call"`
	Return *int64 `json:"return"`
}

type input struct {
	key   string
	write bool
	value string
}

func register() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(input).key
				byKey[key] = append(byKey[key], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range byKey {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() interface{} { return "" },
		Step: func(state, in, out interface{}) (bool, interface{}) {
			op := in.(input)
			if op.write {
				return true, op.value
			}
			return out.(string) == state.(string), state
		},
		DescribeOperation: func(in, out interface{}) string {
			op := in.(input)
			if op.write {
				return fmt.Sprintf("%s := %s", op.key, op.value)
			}
			return fmt.Sprintf("%s = %s", op.key, out)
		},
	}
}

func main() {
	var history []porcupine.Operation
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(make([]byte, 1<<20), 1<<20)
	for scanner.Scan() {
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			fmt.Fprintln(os.Stderr, "a line that is no operation:", err)
			os.Exit(2)
		}
		end := int64(math.MaxInt64)
		if l.Return != nil {
			end = *l.Return
		}
		history = append(history, porcupine.Operation{
			ClientId: l.Client,
			Input:    input{l.Key, l.Kind == "w", l.Value},
			Output:   l.Value,
			Call:     l.Call,
			Return:   end,
		})
	}
	if err := scanner.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "the history cannot be read:", err)
		os.Exit(2)
	}
	switch porcupine.CheckOperationsTimeout(register(), history, 4*time.Minute) {
	case porcupine.Ok:
		fmt.Printf("%d operations are linearizable\n", len(history))
	case porcupine.Unknown:
		fmt.Fprintln(os.Stderr, "the check did not come to an end")
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "the history is not linearizable")
		os.Exit(1)
	}
}
