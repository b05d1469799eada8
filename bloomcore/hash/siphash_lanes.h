/* siphash_lanes: SipHash of LANES inputs at once, by vectors of the processor named by TARGET, as the function
 * ALL_LANES. No header of its own: siphash.c includes it for each kind of processor. */

/* A shorter input ends before the others: its lane stays as it is. The lengths decide, never the key. */
__attribute__((target(TARGET))) static void ALL_LANES(const struct siphash_key *key, const unsigned char *const *data,
                                                      const size_t *len, uint64_t out[2][LANES_MAX])
{
    typedef uint64_t lanes __attribute__((vector_size(8 * LANES)));
    const lanes zero = {0};
    lanes v0 = zero + (key->k[0] ^ INIT0), v1 = zero + (key->k[1] ^ INIT1 ^ MARK_START);
    lanes v2 = zero + (key->k[0] ^ INIT2), v3 = zero + (key->k[1] ^ INIT3), last = zero, word = zero;
    size_t least = len[0] / 8, most = least;

    for (unsigned j = 0; j < LANES; j++) {
        last[j] = len[j] / 8;
        least = last[j] < least ? last[j] : least;
        most = last[j] > most ? last[j] : most;
    }
    for (size_t i = 0; i < least; i++) {
        for (unsigned j = 0; j < LANES; j++)
            word[j] = load64(data[j] + 8 * i);
        TAKE(word);
    }
    for (size_t i = least; i <= most; i++) {
        uint64_t words[LANES];
        lanes w0 = v0, w1 = v1, w2 = v2, w3 = v3, alive = (lanes)(last >= i);

        for (unsigned j = 0; j < LANES; j++)
            words[j] = word_of(data[j], len[j], i);
        memcpy(&word, words, sizeof(word));
        TAKE(word);
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
