// What a command gives whose reply is lost once, when the program asks again: `go run lost_reply.go PORT WORD...`, through
// lost_reply.py's proxy at the port. redigo itself sends nothing twice.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/gomodule/redigo/redis"
)

func main() {
	words := redis.Args{}.AddFlat(os.Args[3:])
	for attempt := 0; attempt < 3; attempt++ {
		client, err := redis.Dial("tcp", "127.0.0.1:"+os.Args[1])
		if err != nil {
			log.Fatal(err)
		}
		answers, err := redis.Ints(client.Do(os.Args[2], words...))
		client.Close()
		if err == nil {
			fmt.Println(answers[0])
			return
		}
	}
	log.Fatal("no reply")
}
