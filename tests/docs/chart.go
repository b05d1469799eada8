// Renders the templates of a chart where there is no helm: `go run chart.go TEMPLATES...`, with the data as JSON on the standard input. It
// knows the functions of helm that the chart uses.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"text/template"
)

func main() {
	var data any
	if err := json.NewDecoder(os.Stdin).Decode(&data); err != nil {
		log.Fatal(err)
	}
	functions := template.FuncMap{
		"sha256sum": func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
		"toJson": func(value any) (string, error) { text, err := json.Marshal(value); return string(text), err },
		"required": func(why string, value any) (any, error) {
			if value == "" {
				return nil, errors.New(why)
			}
			return value, nil
		},
	}
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err == nil {
			err = template.Must(template.New(path).Funcs(functions).Option("missingkey=error").Parse("---\n"+string(text)+"\n")).Execute(os.Stdout, data)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}
