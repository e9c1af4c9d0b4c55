// Report: what an evaluation found on one data set: numbers by name, and for classification what is
// behind them.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stoker::score {

// In order; the first is the loss.
using MetricValues = std::vector<std::pair<std::string, double>>;

// Figures of each class, and the matrix, take a line or a row each in the result's file: not of
// more classes than somebody would look at.
inline constexpr uint64_t kMostClassFigures = 1000;
inline constexpr uint64_t kMostConfusionClasses = 256;

// Of what nothing was divided by, 0: a class that was never predicted has precision 0.
struct ClassFigures {
  std::string name;      // as the data set calls it, or its number
  uint64_t samples = 0;  // whose label it is
  double precision = 0;
  double recall = 0;
  double f1 = 0;

  bool operator==(const ClassFigures&) const = default;
};

// [label][prediction]
using Confusion = std::vector<std::vector<uint64_t>>;

struct Mistake {
  uint64_t sample = 0;  // counted from the first that was added
  int64_t label = 0;
  int64_t prediction = 0;
  double confidence = 0;  // the model's, in its prediction
  double loss = 0;

  bool operator==(const Mistake&) const = default;
};

struct Report {
  MetricValues metrics;
  std::vector<ClassFigures> classes;  // empty: no classes, or more than kMostClassFigures
  Confusion confusion;                // empty: the same, kMostConfusionClasses
  std::vector<Mistake> mistakes;      // those with the largest loss, the worst first
};

}  // namespace stoker::score
