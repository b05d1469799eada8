#include "hdr.h"

#include <math.h>

#include "histogram.h"

static size_t index_of(uint64_t ns)
{
    size_t index = histogram_bucket(ns, HDR_STEPS_LOG2);
    return index < HDR_SIZE ? index : HDR_SIZE - 1;
}

static uint64_t value_at(size_t index)
{
    return histogram_bucket_end(index, HDR_STEPS_LOG2);
}

void hdr_record(struct hdr *hdr, uint64_t ns, uint64_t times)
{
    hdr->counts[index_of(ns)] += times;
    hdr->total += times;
    if (ns > hdr->max)
        hdr->max = ns;
}

void hdr_merge(struct hdr *sum, const struct hdr *from)
{
    for (unsigned i = 0; i < HDR_SIZE; i++)
        sum->counts[i] += from->counts[i];
    sum->total += from->total;
    if (from->max > sum->max)
        sum->max = from->max;
}

uint64_t hdr_percentile(const struct hdr *hdr, double percentile)
{
    uint64_t rank = (uint64_t)ceil(percentile / 100 * (double)hdr->total - 1e-6), seen = 0; /* 99.9 % of 1000 is 999 */

    if (rank == 0)
        rank = 1;
    for (unsigned i = 0; i < HDR_SIZE; i++) {
        seen += hdr->counts[i];
        if (seen >= rank)
            return value_at(i) < hdr->max ? value_at(i) : hdr->max;
    }
    return hdr->max;
}

double hdr_mean(const struct hdr *hdr)
{
    double sum = 0;

    for (unsigned i = 0; i < HDR_SIZE; i++)
        sum += (double)hdr->counts[i] * (double)value_at(i);
    return hdr->total ? sum / (double)hdr->total : 0;
}

static double deviation(const struct hdr *hdr, double mean)
{
    double sum = 0;

    for (unsigned i = 0; i < HDR_SIZE; i++) {
        double distance = (double)value_at(i) - mean;
        sum += (double)hdr->counts[i] * distance * distance;
    }
    return hdr->total ? sqrt(sum / (double)hdr->total) : 0;
}

void hdr_print(const struct hdr *hdr, FILE *out)
{
    double left = 1; /* of the distribution: halved after every five lines, so that the tail is seen finely */
    uint64_t seen = 0;
    size_t index = 0;
    unsigned line = 0;

    fprintf(out, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    while (hdr->total && seen < hdr->total) {
        double target = 1 - left + left / 2 * (line % 5) / 5;
        while (index < HDR_SIZE && (double)seen < target * (double)hdr->total)
            seen += hdr->counts[index++];
        uint64_t edge = index ? value_at(index - 1) : 0;
        double value = (double)(edge < hdr->max ? edge : hdr->max) / 1000;
        fprintf(out, "%12.3f %14.12f %10llu %14.2f\n", value, target, (unsigned long long)seen, 1 / (1 - target));
        if (++line % 5 == 0)
            left /= 2;
    }
    fprintf(out, "%12.3f %14.12f %10llu\n", (double)hdr->max / 1000, 1.0, (unsigned long long)hdr->total);
    double mean = hdr_mean(hdr);
    fprintf(out, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", mean / 1000, deviation(hdr, mean) / 1000);
    fprintf(out, "#[Max     = %12.3f, Total count    = %12llu]\n", (double)hdr->max / 1000,
            (unsigned long long)hdr->total);
    fprintf(out, "#[Buckets = %12d, SubBuckets     = %12d]\n", HDR_BUCKETS, 2 * HDR_STEPS);
}
