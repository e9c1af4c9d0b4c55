#include "tests/parity/double_cases.h"

#include <set>

#include "tests/parity/case_parts.h"

namespace stoker::parity {
namespace {

// The smallest images that leave 2 x 2 pixels before the last norms: with two samples these
// normalize over eight values. Four values (1 x 1 pixels, four samples) would barely exceed their
// own mean and deviation.
constexpr int64_t kSideOfResnet = 33, kSideOfVgg = 32, kSideOfInception = 107;
constexpr int64_t kSideOfAuxiliary =
    // the minimum of the auxiliary head, which leaves one pixel to it
    299;
constexpr int64_t kWidth = 32;  // of the fully connected layers
const std::set<std::string> kGolden{"resnet20", "resnet18", "resnet50",     "vgg16",
                                    "vgg13_bn", "vit",      "inception_v3", "inception_v3_aux"};

}  // namespace

std::vector<DoubleCase> double_cases() {
  std::vector<DoubleCase> cases;
  for (const int depth : {8, 14, 20, 32, 44, 56})
    cases.push_back({"resnet" + std::to_string(depth), resnet(depth), 16});
  for (const int depth : {18, 34, 50, 101, 152})
    cases.push_back({"resnet" + std::to_string(depth), resnet(depth), kSideOfResnet});
  for (const int depth : {11, 13, 16, 19}) {
    const std::string name = "vgg" + std::to_string(depth);
    cases.push_back({name, vgg(depth, false, kWidth, 0.0), kSideOfVgg,
                     1});  // no norms, so one sample is enough
    cases.push_back({name + "_bn", vgg(depth, true, kWidth, 0.0), kSideOfVgg});
  }
  cases.push_back({"alexnet", alexnet(kWidth, 0.0), 63});
  cases.push_back({"vit", vit(3, 4, 48, 8, /*mlp_dim=*/80), 32});
  cases.push_back({"inception_v3", inception(false, 0.0), kSideOfInception});
  cases.push_back({"inception_v3_aux", inception(true, 0.0), kSideOfAuxiliary, 3});
  for (DoubleCase& each : cases) each.is_golden = kGolden.contains(each.name);
  return cases;
}

}  // namespace stoker::parity
