/* attacks: attacks by chosen items on a filter in Cassandra's layout (na), of one layer. The attackers know its numbers
 * but not its key. T. Gerbet, A. Kumar, C. Lauradoux, "The power of evil choices in Bloom filters" (2015).
 *
 * Thread: one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATTACK_ITEM  48 /* room for an item that is text */
#define ATTACK_MAX_K 21

struct attack_filter {
    uint64_t bits;
    unsigned k;
    unsigned char *set; /* the bits of the plain filter, a byte for each; attack_free() */
};

struct attack_filter attack_begin(uint64_t bits, unsigned k);
void attack_free(struct attack_filter *filter);

/* Notes that the item is in the filter. */
void attack_note(struct attack_filter *filter, const char *item);

/* A binary item of 16 bytes with the hash of the victim, an arbitrary text. */
void attack_twin(const char *victim, unsigned char twin_out[16]);

/* Ordinary texts that together have all bits of the victim; returns their number, at most ATTACK_MAX_K. */
size_t attack_cover(const struct attack_filter *filter, const char *victim, char items_out[][ATTACK_ITEM]);

/* The next text from number *at on with only new and different bits; it is noted. */
void attack_saturate(struct attack_filter *filter, unsigned *at, char item_out[ATTACK_ITEM]);

/* The next text from number *at on that has not been added and passes the filter. */
void attack_pass(const struct attack_filter *filter, unsigned *at, char item_out[ATTACK_ITEM]);
