#include "tests/reliability/resume_case.h"

#include <array>
#include <ostream>
#include <set>
#include <utility>

namespace stoker::test {
namespace {

constexpr size_t kChoices = 6;
using Values = std::array<size_t, kChoices>;  // by number
using Pair = std::pair<std::pair<size_t, size_t>, std::pair<size_t, size_t>>;

const std::array<std::vector<std::string>, kChoices>& words() {
  static const std::array<std::vector<std::string>, kChoices> kWords{
      {{"gpt", "mlp", "lenet", "resnet"},
       {"sgd", "momentum", "nesterov", "adam", "adamw"},
       {"fp32", "bf16"},
       {"full", "off", "window", "shards"},
       {"process", "thread"},
       {"single", "mixture"}}};
  return kWords;
}

std::set<Pair> pairs_of(const Values& values) {
  std::set<Pair> pairs;
  for (size_t a = 0; a < kChoices; ++a)
    for (size_t b = a + 1; b < kChoices; ++b) pairs.insert({{a, values[a]}, {b, values[b]}});
  return pairs;
}

std::vector<Values> all_combinations() {
  std::vector<Values> all{Values{}};
  for (size_t choice = 0; choice < kChoices; ++choice) {
    std::vector<Values> more;
    for (const Values& some : all) {
      for (size_t value = 0; value < words()[choice].size(); ++value) {
        more.push_back(some);
        more.back()[choice] = value;
      }
    }
    all = std::move(more);
  }
  return all;
}

}  // namespace

std::string name_of(const ResumeCase& one) {
  return one.model + "_" + one.optimizer + "_" + one.precision + "_" + one.order + "_" +
         one.readers + "_" + one.data;
}

void PrintTo(const ResumeCase& one, std::ostream* out) { *out << name_of(one); }

std::vector<ResumeCase> pairwise_cases() {
  const std::vector<Values> all = all_combinations();
  std::set<Pair> missing;
  for (const Values& values : all) missing.merge(pairs_of(values));
  std::vector<ResumeCase> cases;
  while (!missing.empty()) {
    const Values* best = nullptr;
    size_t most = 0;
    for (const Values& values : all) {
      size_t fresh = 0;
      for (const Pair& pair : pairs_of(values)) fresh += missing.count(pair);
      if (fresh > most) best = &values, most = fresh;
    }
    for (const Pair& pair : pairs_of(*best)) missing.erase(pair);
    const auto word = [&](size_t choice) { return words()[choice][(*best)[choice]]; };
    cases.push_back({word(0), word(1), word(2), word(3), word(4), word(5)});
  }
  return cases;
}

}  // namespace stoker::test
