/* hdr: a histogram of latencies with three significant digits, with the buckets of Gil Tene's HdrHistogram: doubling
 * width, 1024 linear steps each, an error below 0.1 %.
 *
 * Lifetime: caller's storage. Thread: one writer; hdr_merge() needs the source to be at rest. */
#ifndef BLOOMERY_BENCH_HDR_H
#define BLOOMERY_BENCH_HDR_H

#include <stdint.h>
#include <stdio.h>

#define HDR_STEPS_LOG2 10
#define HDR_STEPS      (1 << HDR_STEPS_LOG2)
#define HDR_BUCKETS    28 /* values up to 2^38 ns, more than four minutes; larger ones count as that */
#define HDR_SIZE       ((HDR_BUCKETS + 1) * HDR_STEPS)

struct hdr {
    uint64_t total;
    uint64_t max; /* exact */
    uint64_t counts[HDR_SIZE];
};

void hdr_record(struct hdr *hdr, uint64_t ns, uint64_t times);
void hdr_merge(struct hdr *sum, const struct hdr *from);

/* The value that `percentile` (0..100) of the recorded ones do not exceed; 0 when there are none. */
uint64_t hdr_percentile(const struct hdr *hdr, double percentile);
double hdr_mean(const struct hdr *hdr);

/* Writes the percentile distribution in the text form that HdrHistogram's plotters read, in microseconds. */
void hdr_print(const struct hdr *hdr, FILE *out);

#endif
