// Command porcupine has Porcupine judge whether each key of a history is linearizable: a checker
// that shares nothing with ours.
//
//	timestone bench register --singles --expire-percent 0 --history history.edn
//	cd lab/porcupine && go run . [-html FILE] history.edn
//
// Exit codes: 0 linearizable, 1 not, 2 not judged.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is a key that is read, written and deleted. Each key is judged alone.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int][]porcupine.Operation{}
		for _, operation := range history {
			key := operation.Input.(request).key
			byKey[key] = append(byKey[key], operation)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return value{} },
	Step: func(state, input, output any) (bool, any) {
		asked := input.(request)
		if asked.isWrite {
			return true, asked.value
		}
		return output.(value) == state.(value), state
	},
	DescribeOperation: func(input, output any) string {
		asked := input.(request)
		if asked.isWrite {
			return fmt.Sprintf("write %s", asked.value)
		}
		return fmt.Sprintf("read %s", output.(value))
	},
}

func (held value) String() string {
	if !held.present {
		return "nothing"
	}
	return fmt.Sprint(held.number)
}

func main() {
	html := flag.String("html", "", "draw the history into this file")
	timeout := flag.Duration("timeout", 5*time.Minute, "give up after")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: porcupine [-html FILE] [-timeout TIME] HISTORY")
		os.Exit(2)
	}
	os.Exit(judge(flag.Arg(0), *html, *timeout))
}

func judge(path, html string, timeout time.Duration) int {
	file, err := os.Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer file.Close()
	operations, err := read(file)
	if err == nil && len(operations) == 0 {
		err = fmt.Errorf("there is nothing in it")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
		return 2
	}
	result, info := porcupine.CheckOperationsVerbose(register, operations, timeout)
	if html != "" {
		if err := porcupine.VisualizePath(register, info, html); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	keys := len(register.Partition(operations))
	switch result {
	case porcupine.Ok:
		fmt.Printf("%s: %d operations on %d keys are linearizable\n", path, len(operations), keys)
		return 0
	case porcupine.Illegal:
		fmt.Printf("%s: NOT linearizable (%d operations on %d keys)\n", path, len(operations), keys)
		return 1
	default:
		fmt.Printf("%s: not judged within %v\n", path, timeout)
		return 2
	}
}
