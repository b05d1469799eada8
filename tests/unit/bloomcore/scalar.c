/* Linked into a test, this file turns the vector code off before the first test runs. */
#include "bloom_vector.h"

__attribute__((constructor)) static void use_scalar_code(void)
{
    bloom_vector_enable(false);
}
