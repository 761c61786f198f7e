package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// request is what a client asked of one key: to read it, or to write a value (absent: to delete).
type request struct {
	key     int
	isWrite bool
	value   value
}

// value is what a key holds; keys are absent at first.
type value struct {
	present bool
	number  int
}

// event is a line of a history.
type event struct {
	kind    string
	process int
	at      int64
	request request
}

var (
	lineForm = regexp.MustCompile(`^\{:type :(\w+), :process (\d+), :index \d+, :time (\d+), :f :txn, :value \[(.*)\]\}$`)
	opForm   = regexp.MustCompile(`^\[:([rw]) (\d+) (nil|-?\d+)\]$`)
)

// read reads a history of single keys that `timestone bench register --singles --expire-percent 0
// --history` has written: one event a line, `;` begins a comment. A request that was refused has not
// taken place. One whose outcome nobody knows may take place at any time from its invocation on, or
// never, so it returns after everything else.
func read(from io.Reader) ([]porcupine.Operation, error) {
	var operations []porcupine.Operation
	open := map[int]event{}
	var last int64
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if line == "" || line[0] == ';' {
			continue
		}
		found, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("line %d %w: %s", number, err, line)
		}
		last = max(last, found.at)
		invoked, isOpen := open[found.process]
		if (found.kind == "invoke") == isOpen {
			return nil, fmt.Errorf("line %d does not follow what process %d did before: %s", number, found.process, line)
		}
		switch found.kind {
		case "invoke":
			open[found.process] = found
		case "ok":
			delete(open, found.process)
			operations = append(operations, operation(invoked, found.request.value, found.at))
		case "fail":
			delete(open, found.process)
		case "info":
			// The process invokes nothing more.
		default:
			return nil, fmt.Errorf("line %d is of an unknown type: %s", number, line)
		}
	}
	for _, invoked := range open {
		if invoked.request.isWrite {
			operations = append(operations, operation(invoked, value{}, math.MaxInt64))
		}
	}
	return operations, lines.Err()
}

func operation(invoked event, found value, returned int64) porcupine.Operation {
	return porcupine.Operation{
		ClientId: invoked.process,
		Input:    invoked.request,
		Call:     invoked.at,
		Output:   found,
		Return:   returned,
	}
}

func parse(line string) (event, error) {
	parts := lineForm.FindStringSubmatch(line)
	if parts == nil {
		return event{}, fmt.Errorf("is no event")
	}
	op := opForm.FindStringSubmatch(parts[4])
	if op == nil {
		return event{}, fmt.Errorf("is not of one key that is read, written or deleted")
	}
	process, err := strconv.Atoi(parts[2])
	if err != nil {
		return event{}, err
	}
	at, err := strconv.ParseInt(parts[3], 10, 64)
	if err != nil {
		return event{}, err
	}
	key, err := strconv.Atoi(op[2])
	if err != nil {
		return event{}, err
	}
	held := value{}
	if op[3] != "nil" {
		number, err := strconv.Atoi(op[3])
		if err != nil {
			return event{}, err
		}
		held = value{present: true, number: number}
	}
	asked := request{key: key, isWrite: op[1] == "w", value: held}
	return event{kind: parts[1], process: process, at: at, request: asked}, nil
}
