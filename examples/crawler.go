// A crawler with many workers: of all that find a URL exactly one fetches it, also after a crash.
//
//	redis-cli BF.RESERVE crawled 0.0001 2000000 KEYED
//	GO111MODULE=off GOPATH=/usr/share/gocode go run crawler.go -state DIRECTORY
//
// Debian: golang-go, golang-github-gomodule-redigo-dev. fetch() is an artificial web; -crash 100 dies when a worker has 100 pages.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"regexp"
	"time"

	"github.com/gomodule/redigo/redis"
)

var (
	server  = flag.String("server", "redis://127.0.0.1:6379", "its address")
	state   = flag.String("state", ".", "the directory of the workers' files")
	workers = flag.Int("workers", 8, "how many")
	crash   = flag.Int("crash", 0, "the number of pages of a worker at which the program dies")
	passes  = regexp.MustCompile("^(LOADING|MISCONF|TRYAGAIN) ") // the server starts, its disk is full, or it does large work
	pool    = &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) { return redis.DialURL(*server) }}
)

func fetch(url string) (links []string) {
	for i := 0; i < 20; i++ {
		links = append(links, fmt.Sprintf("https://example.org/%d", crc32.ChecksumIEEE([]byte(fmt.Sprint(i, url)))%2000))
	}
	return links
}

// Which of the URLs are the owner's. Asks again after a lost reply: the answer to an owner stays the same.
func claim(owner string, urls ...string) []int {
	for attempt := 0; ; attempt++ {
		conn, words := pool.Get(), redis.Args{"crawled", "NOCREATE", "OWNER", owner, "ITEMS"}.AddFlat(urls)
		mine, err := redis.Ints(conn.Do("BF.INSERT", words...))
		conn.Close()
		if err == nil {
			return mine
		} else if reply, refused := err.(redis.Error); refused && !passes.MatchString(string(reply)) || attempt == 100 {
			log.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// In the file of this name a URL stands once when it is claimed, and again when it is finished. Returns the number of URLs.
func crawl(name, first string) int {
	file, err := os.OpenFile(*state+"/"+name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	claimed, todo := map[string]bool{}, map[string]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if url := lines.Text(); claimed[url] {
			delete(todo, url)
		} else {
			claimed[url], todo[url] = true, true
		}
	}
	take := func(urls ...string) {
		for i, mine := range claim(name, urls...) {
			if mine == 1 && !claimed[urls[i]] { // 1 also for what it has claimed before
				claimed[urls[i]], todo[urls[i]] = true, true
				fmt.Fprintln(file, urls[i])
				if len(claimed) == *crash {
					os.Exit(3)
				}
			}
		}
	}
	take(first)
	for len(todo) > 0 {
		for url := range todo {
			take(fetch(url)...)     // one round trip for all links of a page
			fmt.Fprintln(file, url) // after its links are in the file
			delete(todo, url)
		}
	}
	return len(claimed)
}

func main() {
	flag.Parse()
	sum, sums := 0, make(chan int)
	for i := 0; i < *workers; i++ {
		go func(i int) { sums <- crawl(fmt.Sprintf("worker-%d", i), fmt.Sprintf("https://example.org/%d", i)) }(i)
	}
	for i := 0; i < *workers; i++ {
		sum += <-sums
	}
	fmt.Printf("%d pages, each of one worker\n", sum)
}
