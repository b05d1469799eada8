/* resp_reader: reads replies the way a strict client does and writes them down in a form of its own, so that a test
 * sees whether the framing holds. Forms: +text  -text  :n  (n  #t  ,x  _  "bytes"  =ext:"bytes"  nil (RESP2)  nil*
 * (RESP2) [a b]  {k v}  ~[a b]  >[a b] A byte of a string that is not printable ASCII is written as \xHH. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* Reads one reply from data[0..len) and returns its length, or 0 if it is not exactly in a form that the version
 * allows. */
size_t resp_read(const char *data, size_t len, int version, FILE *out);

/* As the reader writes a string. */
void resp_write_quoted(FILE *out, const char *data, size_t len);
