/* primes LIMIT: counts the primes below LIMIT, with a sieve of Eratosthenes that works in pieces of the cache's size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENT (1L << 18)

int main(int argc, char **argv) {
    long limit = argc == 2 ? atol(argv[1]) : 0;
    if (limit < 3) {
        fprintf(stderr, "usage: primes LIMIT, a number above 2\n");
        return 2;
    }
    long root = 1;
    while (root * root < limit)
        root++;

    /* The primes up to the root, each with the next of its odd multiples to strike out. */
    char *small = calloc(root + 1, 1), *segment = malloc(SEGMENT);
    long *primes = malloc((root + 1) * sizeof *primes), *next = malloc((root + 1) * sizeof *next), known = 0;
    if (!small || !segment || !primes || !next)
        return 1;
    for (long n = 3; n <= root; n += 2) {
        if (small[n])
            continue;
        for (long multiple = n * n; multiple <= root; multiple += 2 * n)
            small[multiple] = 1;
        primes[known] = n;
        next[known++] = n * n;
    }

    /* segment[i] stands for the odd number low + 1 + 2 * i. */
    long count = 1;
    for (long low = 2; low < limit; low += 2 * SEGMENT) {
        long high = low + 2 * SEGMENT < limit ? low + 2 * SEGMENT : limit;
        memset(segment, 1, SEGMENT);
        for (long i = 0; i < known && primes[i] * primes[i] < high; i++)
            for (; next[i] < high; next[i] += 2 * primes[i])
                segment[(next[i] - low) / 2] = 0;
        for (long n = low + 1; n < high; n += 2)
            count += segment[(n - low) / 2];
    }
    printf("%ld primes below %ld\n", count, limit);
    return 0;
}
