// DoubleCase: an image model that is compared with PyTorch in double precision; make_double.py has
// the same cases.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "shared/config/model_config.h"

namespace stoker::parity {

struct DoubleCase {
  std::string name;  // torchvision's name if it has the model
  config::ModelConfig model;
  int64_t side = 0;  // height and width of the images
  int64_t samples = 2;
  bool is_golden = false;  // is in the golden file; together these have every kind of block
};
// Used by GoogleTest messages.
inline void PrintTo(const DoubleCase& each, std::ostream* out) { *out << each.name; }

std::vector<DoubleCase> double_cases();

}  // namespace stoker::parity
