/* zero_page: whether the kernel maps its page of zeros where memory is read before it is written. Kernels of some
 * virtual machines give each such read a page of its own: there a sparse filter grows when it is read, and no test can
 * ask for less. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>

/* Pages of this process in memory; -1: not known. */
static inline long zero_page_resident(void)
{
    long size, resident = -1;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file) {
        if (fscanf(file, "%ld %ld", &size, &resident) != 2)
            resident = -1;
        fclose(file);
    }
    return resident;
}

static inline bool zero_page_works(void)
{
    const size_t bytes = (size_t)64 << 20, page = 4096;
    volatile char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long before, after;

    if (map == MAP_FAILED)
        return true;
    (void)madvise((void *)map, bytes, MADV_NOHUGEPAGE);
    before = zero_page_resident();
    for (size_t i = 0; i < bytes; i += page)
        (void)map[i];
    after = zero_page_resident();
    (void)munmap((void *)map, bytes);
    return after - before < (long)(bytes / page / 2);
}
