// ResumeCase: a combination of configuration choices, and small sets of cases that cover all pairs
// of values.
//
// Threads: values.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace stoker::test {

struct ResumeCase {
  std::string model;      // model.name
  std::string optimizer;  // sgd sgd_momentum sgd_nesterov adam adamw rmsprop adagrad lion muon
  std::string precision;  // fp32 bf16 fp16
  std::string order;      // feed.shuffle
  std::string workers;    // processes threads
  std::string data;       // single mixture
  std::string extra;      // plain ema accumulate
};
// Example: "gpt_adamw_bf16_block_processes_mixture_plain".
std::string name_of(const ResumeCase& one);
void PrintTo(const ResumeCase& one, std::ostream* out);

// Any two values of different choices occur together in one of the cases, except pairs of model and
// optimizer, because the optimizer state of a tensor does not depend on the model. Cases with the
// most new pairs come first.
std::vector<ResumeCase> pairwise_cases();

// One case for each model whose step takes about a second.
std::vector<ResumeCase> large_cases();

}  // namespace stoker::test
