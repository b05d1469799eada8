/* alloc_fault: allocations of the code under test, counted and made to fail. Linked with --wrap=realloc and
 * --wrap=free; the proto room allocates with realloc alone. */
#pragma once

#include <stddef.h>

/* From now on the n-th call of realloc (0: the next) and all later ones fail; -1: none. Resets the count. */
void alloc_fault_at(int n);

size_t alloc_calls(void); /* calls of realloc since alloc_fault_at() */
size_t alloc_live(void);  /* blocks obtained from realloc and not freed */
