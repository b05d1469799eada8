/* siphash_lanes: SipHash of LANES inputs at once, by vectors of the processor named by TARGET, as the function
 * ALL_LANES. No header of its own: bloom_key.c includes it for each kind of processor. */

/* A shorter input ends before the others: its lane stays as it is. The lengths decide, never the key. */
__attribute__((target(TARGET))) static void ALL_LANES(const struct siphash_key *key, const unsigned char *const *data,
                                                      const size_t *len, uint64_t out[2][LANES_MAX])
{
    typedef uint64_t lanes __attribute__((vector_size(8 * LANES)));
    const lanes zero = {0};
    lanes v0 = zero + (key->k[0] ^ INIT0), v1 = zero + (key->k[1] ^ INIT1 ^ MARK_START);
    lanes v2 = zero + (key->k[0] ^ INIT2), v3 = zero + (key->k[1] ^ INIT3), word = zero;
    size_t least = len[0], most = len[0];

    for (unsigned j = 1; j < LANES; j++) {
        least = len[j] < least ? len[j] : least;
        most = len[j] > most ? len[j] : most;
    }
    for (size_t i = 0; i < least / 8; i++) {
#pragma GCC unroll 8
        for (unsigned j = 0; j < LANES; j++)
            word[j] = load64(data[j] + 8 * i);
        TAKE(word);
    }
    if (least == most) {
#pragma GCC unroll 8
        for (unsigned j = 0; j < LANES; j++)
            word[j] = last_word(data[j], len[j]);
        TAKE(word);
    }
    for (size_t i = least / 8; least < most && i <= most / 8; i++) {
        lanes w0 = v0, w1 = v1, w2 = v2, w3 = v3, last = zero;

#pragma GCC unroll 8
        for (unsigned j = 0; j < LANES; j++) {
            word[j] = word_of(data[j], len[j], i);
            last[j] = len[j] / 8;
        }
        TAKE(word);
        const lanes alive = (lanes)(last >= i);
        v0 = (v0 & alive) | (w0 & ~alive);
        v1 = (v1 & alive) | (w1 & ~alive);
        v2 = (v2 & alive) | (w2 & ~alive);
        v3 = (v3 & alive) | (w3 & ~alive);
    }
    v2 ^= zero + MARK_START;
    TWO_ROUNDS;
    TWO_ROUNDS;
    const lanes first = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= zero + MARK_SECOND;
    TWO_ROUNDS;
    TWO_ROUNDS;
    const lanes second = v0 ^ v1 ^ v2 ^ v3;
    memcpy(out[0], &first, sizeof(first));
    memcpy(out[1], &second, sizeof(second));
}
