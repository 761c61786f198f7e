// Loads an etcd with transactions of one get and one put, in a closed loop, and says how many it
// carried out: `cargo lab replicas etcd` compares them with Timestone's.
//
//	etcd ENDPOINT,ENDPOINT… CLIENTS KEYS VALUE_BYTES WARMUP_SECONDS SECONDS
//
// Each client has a connection of its own, and one transaction at a time on uniformly drawn keys.
// The answer is one line of JSON: transactions a second, median and 99th percentile of their
// latency in µs, and this process's processor time, of the measured seconds.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func number(at int) int {
	parsed, err := strconv.Atoi(os.Args[at])
	if err != nil {
		log.Fatalf("argument %d: %v", at, err)
	}
	return parsed
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	of := func(time syscall.Timeval) float64 { return float64(time.Sec) + float64(time.Usec)/1e6 }
	return of(usage.Utime) + of(usage.Stime)
}

func main() {
	if len(os.Args) != 7 {
		log.Fatal("usage: etcd ENDPOINTS CLIENTS KEYS VALUE_BYTES WARMUP_SECONDS SECONDS")
	}
	endpoints := strings.Split(os.Args[1], ",")
	clients, keys, valueBytes := number(2), number(3), number(4)
	warmup, measured := number(5), number(6)
	value := strings.Repeat("v", valueBytes)

	const warming, measuring, over = 0, 1, 2
	var phase atomic.Int32
	var done sync.WaitGroup
	latencies := make([][]time.Duration, clients)
	for client := range clients {
		connection, err := clientv3.New(clientv3.Config{
			Endpoints:   []string{endpoints[client%len(endpoints)]},
			DialTimeout: 10 * time.Second,
		})
		if err != nil {
			log.Fatal(err)
		}
		defer connection.Close()
		done.Add(1)
		go func() {
			defer done.Done()
			random := rand.New(rand.NewSource(int64(client)))
			for phase.Load() != over {
				key := fmt.Sprintf("key-%012d", random.Intn(keys))
				began := time.Now()
				_, err := connection.Txn(context.Background()).
					Then(clientv3.OpGet(key), clientv3.OpPut(key, value)).
					Commit()
				if err != nil {
					log.Fatal(err)
				}
				if phase.Load() == measuring {
					latencies[client] = append(latencies[client], time.Since(began))
				}
			}
		}()
	}
	time.Sleep(time.Duration(warmup) * time.Second)
	phase.Store(measuring)
	cpu, began := cpuSeconds(), time.Now()
	time.Sleep(time.Duration(measured) * time.Second)
	phase.Store(over)
	seconds, used := time.Since(began).Seconds(), cpuSeconds()-cpu
	done.Wait()

	var all []time.Duration
	for _, one := range latencies {
		all = append(all, one...)
	}
	if len(all) == 0 {
		log.Fatal("nothing was carried out")
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	micros := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Microseconds())
	}
	answer := map[string]float64{
		"per_second":  float64(len(all)) / seconds,
		"p50_us":      micros(0.5),
		"p99_us":      micros(0.99),
		"cpu_seconds": used,
		"seconds":     seconds,
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		log.Fatal(err)
	}
}
