// ResumeCase: one combination of what a run can be made of; and few of them that pair each choice
// with each other one.
//
// Threads: values.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace stoker::test {

struct ResumeCase {
  std::string model;      // model.name
  std::string optimizer;  // sgd momentum nesterov adam adamw rmsprop adagrad lion muon
  std::string precision;  // fp32 bf16 fp16
  std::string order;      // feed.shuffle
  std::string readers;    // process thread
  std::string data;       // single mixture
  std::string extra;      // plain ema accumulate
};
std::string name_of(const ResumeCase& one);  // "gpt_adamw_bf16_block_process_mixture_plain"
void PrintTo(const ResumeCase& one, std::ostream* out);

// Each two values of different choices are together in one of them, but not each optimizer with each
// model: what it keeps of a tensor does not depend on where that stands. Those with the most new
// pairs come first.
std::vector<ResumeCase> pairwise_cases();

// Of the models of which a step takes a second: one each.
std::vector<ResumeCase> large_cases();

}  // namespace stoker::test
