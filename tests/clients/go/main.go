// Drives a server with go-redis: main HOST PORT PROTOCOL, where the protocol is 2 or 3.
//
// Every check starts on an empty database and prints `ok NAME` or `FAILED NAME: why`; `end` comes last. See ../README.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// A check stops at its first surprise, by panicking with it.
type surprise string

func wrong(form string, values ...any) { panic(surprise(fmt.Sprintf(form, values...))) }

func equal(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		wrong("expected %#v, found %#v", expected, found)
	}
}

func between[T int64 | time.Duration](low, found, high T) {
	if found < low || found > high {
		wrong("expected %v to %v, found %v", low, high, found)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		wrong("unexpected error: %v", err)
	}
	return value
}

func fails(err error, words string) {
	if err == nil || !strings.Contains(err.Error(), words) {
		wrong("expected an error with %q, found %v", words, err)
	}
}

func absent(err error) {
	if !errors.Is(err, redis.Nil) {
		wrong("expected nothing to be there, found %v", err)
	}
}

func goneWithin(limit time.Duration, db *redis.Client, key string) {
	deadline := time.Now().Add(limit)
	for must(db.Exists(ctx, key).Result()) > 0 {
		if time.Now().After(deadline) {
			wrong("%s is still there after %v", key, limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

type check struct {
	name string
	run  func(db *redis.Client)
}

var checks = []check{
	{"connection", func(db *redis.Client) {
		equal(must(db.Ping(ctx).Result()), "PONG")
		equal(must(db.Echo(ctx, "hello").Result()), "hello")
		connection := db.Conn()
		defer connection.Close()
		must(connection.ClientSetName(ctx, "tester").Result())
		equal(must(connection.ClientGetName(ctx).Result()), "tester")
		between(1, must(connection.ClientID(ctx).Result()), int64(1)<<62)
		equal(strings.Contains(must(db.ClientList(ctx).Result()), "name=tester"), true)
		equal(strings.Contains(must(db.Info(ctx, "server").Result()), "redis_version:7"), true)
		between(-5*time.Second, time.Since(must(db.Time(ctx).Result())), 5*time.Second)
		commands := must(db.Command(ctx).Result())
		equal(commands["get"].ReadOnly, true)
		equal(int(commands["get"].FirstKeyPos), 1)
	}},
	{"strings", func(db *redis.Client) {
		absent(db.Get(ctx, "a").Err())
		equal(must(db.Set(ctx, "a", "1", 0).Result()), "OK")
		equal(must(db.Get(ctx, "a").Result()), "1")
		binary := make([]byte, 256)
		for at := range binary {
			binary[at] = byte(at)
		}
		must(db.Set(ctx, string(binary), binary, 0).Result())
		equal(must(db.Get(ctx, string(binary)).Bytes()), binary)
		must(db.Set(ctx, "empty", "", 0).Result())
		equal(must(db.Get(ctx, "empty").Result()), "")
		equal(must(db.Append(ctx, "a", "23").Result()), int64(3))
		equal(must(db.StrLen(ctx, "a").Result()), int64(3))
		must(db.Set(ctx, "text", "Hello World", 0).Result())
		equal(must(db.GetRange(ctx, "text", -5, -1).Result()), "World")
		equal(must(db.SetRange(ctx, "text", 6, "Redis").Result()), int64(11))
		equal(must(db.Get(ctx, "text").Result()), "Hello Redis")
		equal(must(db.GetDel(ctx, "a").Result()), "123")
		absent(db.GetDel(ctx, "a").Err())
		equal(must(db.Type(ctx, "text").Result()), "string")
		equal(must(db.Del(ctx, "text", "none").Result()), int64(1))
	}},
	{"set_options", func(db *redis.Client) {
		absent(db.SetArgs(ctx, "a", "1", redis.SetArgs{Mode: "XX"}).Err())
		equal(must(db.SetArgs(ctx, "a", "1", redis.SetArgs{Mode: "NX"}).Result()), "OK")
		absent(db.SetArgs(ctx, "a", "2", redis.SetArgs{Mode: "NX"}).Err())
		equal(must(db.SetArgs(ctx, "a", "3", redis.SetArgs{Mode: "XX", Get: true}).Result()), "1")
		absent(db.SetArgs(ctx, "b", "1", redis.SetArgs{Get: true}).Err())
		must(db.Set(ctx, "a", "5", 100*time.Second).Result())
		must(db.Set(ctx, "a", "6", redis.KeepTTL).Result())
		between(95*time.Second, must(db.TTL(ctx, "a").Result()), 100*time.Second)
		must(db.Set(ctx, "a", "7", 0).Result())
		equal(must(db.TTL(ctx, "a").Result()), time.Duration(-1))
	}},
	{"many_keys", func(db *redis.Client) {
		must(db.MSet(ctx, "a", "1", "b", "2", "c", "3").Result())
		equal(must(db.MGet(ctx, "a", "none", "c").Result()), []any{"1", nil, "3"})
		equal(must(db.MSetNX(ctx, "d", "4", "a", "5").Result()), false)
		equal(must(db.MSetNX(ctx, "d", "4", "e", "5").Result()), true)
		equal(must(db.Exists(ctx, "a", "a", "none").Result()), int64(2))
		equal(must(db.Unlink(ctx, "d", "e", "none").Result()), int64(2))
	}},
	{"counters", func(db *redis.Client) {
		equal(must(db.Incr(ctx, "n").Result()), int64(1))
		equal(must(db.IncrBy(ctx, "n", 41).Result()), int64(42))
		equal(must(db.Decr(ctx, "n").Result()), int64(41))
		equal(must(db.DecrBy(ctx, "n", 50).Result()), int64(-9))
		equal(must(db.IncrByFloat(ctx, "f", 2.75).Result()), 2.75)
		must(db.Set(ctx, "n", "9223372036854775807", 0).Result())
		fails(db.Incr(ctx, "n").Err(), "ERR increment or decrement would overflow")
		must(db.Set(ctx, "text", "abc", 0).Result())
		fails(db.Incr(ctx, "text").Err(), "ERR value is not an integer or out of range")
	}},
	{"expiry", func(db *redis.Client) {
		equal(must(db.TTL(ctx, "none").Result()), time.Duration(-2))
		must(db.Set(ctx, "a", "1", 100*time.Second).Result())
		between(95*time.Second, must(db.PTTL(ctx, "a").Result()), 100*time.Second)
		equal(must(db.Persist(ctx, "a").Result()), true)
		equal(must(db.Persist(ctx, "a").Result()), false)
		equal(must(db.Expire(ctx, "a", 50*time.Second).Result()), true)
		equal(must(db.ExpireNX(ctx, "a", 60*time.Second).Result()), false)
		equal(must(db.ExpireGT(ctx, "a", 60*time.Second).Result()), true)
		at := time.Now().Add(200 * time.Second).Truncate(time.Second)
		equal(must(db.ExpireAt(ctx, "a", at).Result()), true)
		equal(must(db.ExpireTime(ctx, "a").Result()), time.Duration(at.Unix())*time.Second)
		equal(must(db.GetEx(ctx, "a", 70*time.Second).Result()), "1")
		between(65*time.Second, must(db.TTL(ctx, "a").Result()), 70*time.Second)
		equal(must(db.Expire(ctx, "a", -time.Second).Result()), true)
		absent(db.Get(ctx, "a").Err())
	}},
	{"waiting_for_expiry", func(db *redis.Client) {
		began := time.Now()
		must(db.Set(ctx, "short", "1", 300*time.Millisecond).Result())
		must(db.Set(ctx, "kept", "1", 200*time.Millisecond).Result())
		equal(must(db.Persist(ctx, "kept").Result()), true)
		equal(must(db.Get(ctx, "short").Result()), "1")
		goneWithin(5*time.Second, db, "short")
		between(290*time.Millisecond, time.Since(began), 5*time.Second)
		absent(db.Get(ctx, "short").Err())
		equal(must(db.Keys(ctx, "*").Result()), []string{"kept"})
	}},
	{"pipelines", func(db *redis.Client) {
		sent, err := db.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for n := range 2000 {
				pipe.Set(ctx, "key:"+strconv.Itoa(n), n, 0)
				pipe.Incr(ctx, "n")
			}
			return nil
		})
		must(0, err)
		equal(sent[3999].(*redis.IntCmd).Val(), int64(2000))
		sent, err = db.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for n := range 2000 {
				pipe.Get(ctx, "key:"+strconv.Itoa(n))
			}
			return nil
		})
		must(0, err)
		for n, command := range sent {
			equal(command.(*redis.StringCmd).Val(), strconv.Itoa(n))
		}
		sent, err = db.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "text", "abc", 0)
			pipe.Incr(ctx, "text")
			pipe.Get(ctx, "text")
			return nil
		})
		fails(err, "not an integer")
		equal(sent[2].(*redis.StringCmd).Val(), "abc")
	}},
	{"transactions", func(db *redis.Client) {
		sent, err := db.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "a", "1", 0)
			pipe.Incr(ctx, "a")
			pipe.MGet(ctx, "a", "none")
			pipe.Expire(ctx, "a", 100*time.Second)
			return nil
		})
		must(0, err)
		equal(sent[1].(*redis.IntCmd).Val(), int64(2))
		equal(sent[2].(*redis.SliceCmd).Val(), []any{"2", nil})
		equal(sent[3].(*redis.BoolCmd).Val(), true)
	}},
	{"watch_succeeds", func(db *redis.Client) {
		must(db.Set(ctx, "a", "10", 0).Result())
		err := db.Watch(ctx, func(tx *redis.Tx) error {
			before := must(tx.Get(ctx, "a").Int())
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "a", before*2, 0)
				pipe.Set(ctx, "b", before, 0)
				return nil
			})
			return err
		}, "a", "b")
		must(0, err)
		equal(must(db.MGet(ctx, "a", "b").Result()), []any{"20", "10"})
	}},
	{"watch_conflicts", func(db *redis.Client) {
		for _, change := range []func(){
			func() { must(db.Set(ctx, "a", "2", 0).Result()) },
			func() { must(db.Del(ctx, "a").Result()) },
			func() { must(db.Set(ctx, "a", "3", 1500*time.Millisecond).Result()) },
			func() { goneWithin(5*time.Second, db, "a") },
		} {
			err := db.Watch(ctx, func(tx *redis.Tx) error {
				change()
				_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
					pipe.Set(ctx, "lost", "1", 0)
					return nil
				})
				return err
			}, "a")
			if err != redis.TxFailedErr {
				wrong("expected TxFailedErr, found %v", err)
			}
		}
		absent(db.Get(ctx, "lost").Err())
	}},
	{"no_update_is_lost", func(db *redis.Client) {
		const workers, rounds = 4, 40
		var all sync.WaitGroup
		failures := make(chan error, workers)
		add := func(tx *redis.Tx) error {
			value, err := tx.Get(ctx, "n").Int()
			if err != nil && err != redis.Nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "n", value+1, 0)
				return nil
			})
			return err
		}
		for range workers {
			all.Go(func() {
				for done := 0; done < rounds; {
					switch err := db.Watch(ctx, add, "n"); err {
					case nil:
						done++
					case redis.TxFailedErr:
					default:
						failures <- err
						return
					}
				}
			})
		}
		all.Wait()
		close(failures)
		for err := range failures {
			wrong("a worker failed: %v", err)
		}
		equal(must(db.Get(ctx, "n").Int()), workers*rounds)
	}},
	{"keyspace", func(db *redis.Client) {
		var names []string
		for n := range 500 {
			names = append(names, "user:"+strconv.Itoa(n))
			must(db.Set(ctx, names[n], "x", 0).Result())
		}
		sort.Strings(names)
		equal(must(db.DBSize(ctx).Result()), int64(500))
		found := must(db.Keys(ctx, "user:*").Result())
		sort.Strings(found)
		equal(found, names)
		seen := map[string]bool{}
		for scan := db.Scan(ctx, 0, "user:*", 20).Iterator(); scan.Next(ctx); {
			seen[scan.Val()] = true
		}
		equal(len(seen), 500)
		equal(seen[must(db.RandomKey(ctx).Result())], true)
		must(db.FlushDB(ctx).Result())
		equal(must(db.DBSize(ctx).Result()), int64(0))
		absent(db.RandomKey(ctx).Err())
	}},
	{"errors", func(db *redis.Client) {
		fails(db.Do(ctx, "GET").Err(), "ERR wrong number of arguments for 'get' command")
		fails(db.Do(ctx, "NOSUCH", "a").Err(), "ERR unknown command 'NOSUCH', with args beginning with: 'a' ")
		fails(db.Do(ctx, "SET", "a", "1", "SIDEWAYS").Err(), "ERR syntax error")
		fails(db.Do(ctx, "EXPIRE", "a", "x").Err(), "ERR value is not an integer or out of range")
		_, err := db.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "a", "1", 0)
			pipe.Do(ctx, "NOSUCH")
			return nil
		})
		fails(err, "EXECABORT Transaction discarded because of previous errors.")
		absent(db.Get(ctx, "a").Err())
		if os.Getenv("CLIENTS_SERVER") != "redis" {
			must(db.Set(ctx, "text", "abc", 0).Result())
			_, err = db.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "a", "1", 0)
				pipe.Incr(ctx, "text")
				return nil
			})
			fails(err, "EXECABORT Transaction discarded because command 2 ('incr') failed")
			absent(db.Get(ctx, "a").Err())
		}
		equal(must(db.Ping(ctx).Result()), "PONG")
	}},
	{"large_values", func(db *redis.Client) {
		value := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		must(db.Set(ctx, "big", value, 0).Result())
		equal(bytes.Equal(must(db.Get(ctx, "big").Bytes()), value), true)
		equal(must(db.Append(ctx, "big", "tail").Result()), int64(len(value)+4))
		equal(must(db.GetRange(ctx, "big", -8, -1).Result()), "cdeftail")
	}},
}

func run(one check, db *redis.Client) (ok bool) {
	defer func() {
		if why := recover(); why != nil {
			fmt.Printf("FAILED %s: %v\n", one.name, why)
		}
	}()
	must(db.FlushDB(ctx).Result())
	one.run(db)
	fmt.Printf("ok %s\n", one.name)
	return true
}

func main() {
	protocol, err := strconv.Atoi(os.Args[3])
	if err != nil {
		fmt.Println("the third argument is the protocol: 2 or 3")
		os.Exit(2)
	}
	db := redis.NewClient(&redis.Options{Addr: os.Args[1] + ":" + os.Args[2], Protocol: protocol, MaxRetries: -1, ReadTimeout: 20 * time.Second})
	failures := 0
	for _, one := range checks {
		if !run(one, db) {
			failures++
		}
	}
	db.Close()
	fmt.Println("end")
	if failures > 0 {
		os.Exit(1)
	}
}
