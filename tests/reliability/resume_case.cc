#include "tests/reliability/resume_case.h"

#include <array>
#include <ostream>
#include <utility>

namespace stoker::test {
namespace {

constexpr size_t kChoices = 7;
constexpr size_t kModel = 0, kOptimizer = 1;
constexpr size_t kMaxValues = 9;              // values per choice
using Values = std::array<size_t, kChoices>;  // value index by choice
using Pairs = std::vector<bool>;              // by number_of()

const std::array<std::vector<std::string>, kChoices>& choice_values() {
  static const std::array<std::vector<std::string>, kChoices> kWords{
      {{"gpt", "mlp", "lenet5", "resnet8", "blstm", "lstm_lm", "vit", "sequential", "vgg11_bn"},
       {"sgd", "sgd_momentum", "sgd_nesterov", "adam", "adamw", "rmsprop", "adagrad", "lion",
        "muon"},
       {"fp32", "bf16", "fp16"},
       {"full", "none", "block", "shards"},
       {"processes", "threads"},
       {"single", "mixture"},
       {"plain", "ema", "accumulate"}}};
  return kWords;
}

size_t pair_index(const Values& values, size_t a, size_t b) {
  return ((a * kMaxValues + values[a]) * kChoices + b) * kMaxValues + values[b];
}

// Calls `visit` with the number of each pair of values that must be covered.
template <typename Visit>
void for_each_pair(const Values& values, Visit visit) {
  for (size_t a = 0; a < kChoices; ++a)
    for (size_t b = a + 1; b < kChoices; ++b)
      if (a != kModel || b != kOptimizer) visit(pair_index(values, a, b));
}

std::vector<Values> all_combinations() {
  std::vector<Values> all{Values{}};
  for (size_t choice = 0; choice < kChoices; ++choice) {
    std::vector<Values> more;
    for (const Values& partial : all) {
      for (size_t value = 0; value < choice_values()[choice].size(); ++value) {
        more.push_back(partial);
        more.back()[choice] = value;
      }
    }
    all = std::move(more);
  }
  return all;
}

ResumeCase to_case(const Values& values) {
  const auto word = [&](size_t choice) { return choice_values()[choice][values[choice]]; };
  return {word(0), word(1), word(2), word(3), word(4), word(5), word(6)};
}

}  // namespace

std::string name_of(const ResumeCase& one) {
  return one.model + "_" + one.optimizer + "_" + one.precision + "_" + one.order + "_" +
         one.workers + "_" + one.data + "_" + one.extra;
}

void PrintTo(const ResumeCase& one, std::ostream* out) { *out << name_of(one); }

std::vector<ResumeCase> pairwise_cases() {
  const std::vector<Values> all = all_combinations();
  Pairs uncovered(kChoices * kMaxValues * kChoices * kMaxValues);
  for (const Values& values : all)
    for_each_pair(values, [&](size_t pair) { uncovered[pair] = true; });
  std::vector<ResumeCase> cases;
  for (;;) {
    const Values* best = nullptr;
    size_t max_new_pairs = 0;
    for (const Values& values : all) {
      size_t new_pairs = 0;
      for_each_pair(values, [&](size_t pair) { new_pairs += uncovered[pair]; });
      if (new_pairs > max_new_pairs) best = &values, max_new_pairs = new_pairs;
    }
    if (best == nullptr) return cases;
    for_each_pair(*best, [&](size_t pair) { uncovered[pair] = false; });
    cases.push_back(to_case(*best));
  }
}

std::vector<ResumeCase> large_cases() {
  return {{"alexnet", "sgd_momentum", "fp32", "full", "processes", "single", "ema"},
          {"inception_v3", "rmsprop", "fp32", "full", "processes", "single", "plain"}};
}

}  // namespace stoker::test
