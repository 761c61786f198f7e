package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// history writes events as `timestone bench --history` does: "process type op", one a word of time.
func history(events ...string) string {
	lines := []string{"; timestone history 1: {:workload :single-keys}"}
	for index, text := range events {
		parts := strings.SplitN(text, " ", 3)
		lines = append(lines, fmt.Sprintf(
			"{:type :%s, :process %s, :index %d, :time %d, :f :txn, :value [%s]}",
			parts[1], parts[0], index, index*10, parts[2]))
	}
	return strings.Join(lines, "\n") + "\n"
}

func judged(t *testing.T, text string) porcupine.CheckResult {
	t.Helper()
	operations, err := read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return porcupine.CheckOperationsTimeout(register, operations, 0)
}

// What a right store may answer.
func TestRightHistoriesPass(t *testing.T) {
	for name, text := range map[string]string{
		"a value is there until it is deleted": history(
			"0 invoke [:w 1 5]", "0 ok [:w 1 5]", "1 invoke [:r 1 nil]", "1 ok [:r 1 5]",
			"0 invoke [:w 1 nil]", "0 ok [:w 1 nil]", "1 invoke [:r 1 nil]", "1 ok [:r 1 nil]"),
		"a write that runs may be seen or not": history(
			"0 invoke [:w 1 5]", "1 invoke [:r 1 nil]", "2 invoke [:r 1 nil]", "1 ok [:r 1 nil]",
			"2 ok [:r 1 5]", "0 ok [:w 1 5]"),
		"one of unknown outcome takes place late": history(
			"0 invoke [:w 1 5]", "0 info [:w 1 5]", "1 invoke [:r 1 nil]", "1 ok [:r 1 nil]",
			"1 invoke [:r 1 nil]", "1 ok [:r 1 5]"),
		"and one that is not ended, or never": history(
			"0 invoke [:w 1 5]", "1 invoke [:r 1 nil]", "1 ok [:r 1 nil]"),
		"keys have nothing to do with each other": history(
			"0 invoke [:w 1 5]", "0 ok [:w 1 5]", "1 invoke [:r 2 nil]", "1 ok [:r 2 nil]"),
	} {
		if result := judged(t, text); result != porcupine.Ok {
			t.Errorf("%s: %s", name, result)
		}
	}
}

// What a wrong one answers: the checker can fail.
func TestPlantedViolationsAreFound(t *testing.T) {
	for name, text := range map[string]string{
		"an acknowledged write is lost": history(
			"0 invoke [:w 1 5]", "0 ok [:w 1 5]", "1 invoke [:r 1 nil]", "1 ok [:r 1 nil]"),
		"a deposed primary answers from the past": history(
			"0 invoke [:w 1 5]", "0 ok [:w 1 5]", "0 invoke [:w 1 6]", "0 ok [:w 1 6]",
			"1 invoke [:r 1 nil]", "1 ok [:r 1 5]"),
		"what one has seen, another one does not": history(
			"0 invoke [:w 1 5]", "1 invoke [:r 1 nil]", "1 ok [:r 1 5]", "2 invoke [:r 1 nil]",
			"2 ok [:r 1 nil]", "0 ok [:w 1 5]"),
		"a refused write is seen": history(
			"0 invoke [:w 1 5]", "0 fail [:w 1 5]", "1 invoke [:r 1 nil]", "1 ok [:r 1 5]"),
		"what is deleted comes back": history(
			"0 invoke [:w 1 5]", "0 ok [:w 1 5]", "0 invoke [:w 1 nil]", "0 ok [:w 1 nil]",
			"1 invoke [:r 1 nil]", "1 ok [:r 1 5]"),
	} {
		if result := judged(t, text); result != porcupine.Illegal {
			t.Errorf("%s: %s", name, result)
		}
	}
}

// What is no history of single keys is not judged.
func TestOtherHistoriesAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"two operations": history("0 invoke [:r 1 nil] [:w 2 5]"),
		"a list":         history("0 invoke [:append 1 5]"),
		"an expiry":      history("0 invoke [:w 1 5 1000]"),
		"two at once":    history("0 invoke [:r 1 nil]", "0 invoke [:r 1 nil]"),
		"only an answer": history("0 ok [:r 1 nil]"),
	} {
		if _, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
