// sample_log_gamma: random weights of mixtures. Beta and Dirichlet variates are quotients of Gamma
// variates.
//
// Threads: a pure function.
#pragma once

#include "shared/data/counter_rng.h"

namespace stoker::data::transform {

// The logarithm of a Gamma(alpha, 1) variate, by Marsaglia and Tsang, "A simple method for
// generating gamma variables" (2000). A logarithm, because for small alpha the variate itself is
// often smaller than any double.
double sample_log_gamma(double alpha, CounterRng& rng);

}  // namespace stoker::data::transform
