/* The coordinate-descent loop as one would write it in C: the rival of benchmarks/kernels.py, used nowhere else.
 *
 * One fused pass per update (apply the last change to z, sum the next coordinate's clipped derivatives), sums in
 * double precision, compiled with -O3 -march=native -ffast-math. It is neither exact nor private. */

#include <math.h>
#include <stddef.h>

static inline double clamp(double v, double bound) { return fmin(fmax(v, -bound), bound); }

static double soft_threshold(double v, double t) { return fmax(v - t, 0.0) - fmax(-v - t, 0.0); }

#define DESCEND(NAME, DERIVATIVE)                                                                                      \
    static double NAME##_sweep(const double *previous, double change, const double *column, const double *target,      \
                               double *predictor, double clip, size_t n)                                               \
    {                                                                                                                  \
        double total = 0.0;                                                                                            \
        for (size_t i = 0; i < n; i++) {                                                                               \
            double y = target[i], z = predictor[i] + change * previous[i];                                             \
            predictor[i] = z;                                                                                          \
            total += clamp((DERIVATIVE)*column[i], clip);                                                              \
        }                                                                                                              \
        return total;                                                                                                  \
    }                                                                                                                  \
    void NAME(const double *features, const double *target, double *predictor, double *weights, const long *order,     \
              long n_updates, const double *clip, const double *steps, const double *noise, double alpha, size_t n)    \
    {                                                                                                                  \
        long previous = 0;                                                                                             \
        double change = 0.0;                                                                                           \
        for (long k = 0; k < n_updates; k++) {                                                                         \
            long j = order[k];                                                                                         \
            double total = NAME##_sweep(features + previous * n, change, features + j * n, target, predictor,          \
                                        clip[j], n);                                                                   \
            double value = weights[j] - steps[j] * (total + noise[k]) / (double)n;                                     \
            value = soft_threshold(value, steps[j] * alpha);                                                           \
            change = value - weights[j];                                                                               \
            previous = j;                                                                                              \
            weights[j] = value;                                                                                        \
        }                                                                                                              \
    }

DESCEND(descend_squared, z - y)
DESCEND(descend_logistic, -y / (1.0 + exp(y * z)))
