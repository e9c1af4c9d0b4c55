// DoubleCase: a model over pictures that is compared with PyTorch's in double precision;
// make_double.py has the same.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "shared/config/model_config.h"

namespace stoker::parity {

struct DoubleCase {
  std::string name;  // torchvision's, where it has the model
  config::ModelConfig model;
  int64_t side = 0;  // of its pictures
  int64_t samples = 2;
  bool is_golden = false;  // compared each time; those together have every kind of block
};
// For GoogleTest's messages.
inline void PrintTo(const DoubleCase& each, std::ostream* out) { *out << each.name; }

std::vector<DoubleCase> double_cases();

}  // namespace stoker::parity
