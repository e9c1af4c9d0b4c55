#include "shared/base/tensor_role.h"

#include <optional>
#include <utility>

#include <gtest/gtest.h>

namespace stoker {
namespace {

// Producers write to the ring by these names.
TEST(TensorRoleTest, IsDeterminedByName) {
  const std::pair<const char*, TensorRole> roles[] = {
      {"input", TensorRole::kInput},   {"tokens", TensorRole::kTokens},
      {"length", TensorRole::kLength}, {"label", TensorRole::kLabel},
      {"labels", TensorRole::kLabels}, {"target", TensorRole::kTarget}};
  for (const auto& [name, role] : roles) {
    EXPECT_EQ(tensor_name(role), name);
    EXPECT_EQ(role_of({.name = name, .shape = {}}), role);
  }
}

TEST(TensorRoleTest, IsUnknownForOtherTensors) {
  for (const char* const name : {"", "inputs", "Label", "fc.weight"})
    EXPECT_EQ(role_of({.name = name, .shape = {}}), std::nullopt) << name;
}

// As the field of a module with its own loss.
TEST(TensorRoleTest, AllowsMaskOfOtherDtypeAsName) {
  EXPECT_EQ(role_of({.name = "mask", .dtype = DType::kU8, .shape = {2, 2}}), TensorRole::kMask);
  EXPECT_EQ(role_of({.name = "mask", .dtype = DType::kI64, .shape = {2, 2}}), std::nullopt);
}

}  // namespace
}  // namespace stoker
