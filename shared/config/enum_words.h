// The words of an enum in configurations, messages and files, declared next to each enum:
//
//   enum class Precision { kFp32, kTf32 };
//   template <> inline constexpr auto kWords<Precision> = words("fp32", "tf32");
#pragma once

#include <array>
#include <string_view>
#include <type_traits>

namespace stoker::config {

template <typename Enum>
inline constexpr std::nullptr_t kWords = nullptr;  // specialized for each enum, in its order

template <typename... Words>
consteval auto words(const Words&... all) {
  return std::array<std::string_view, sizeof...(all)>{all...};
}
template <typename Enum>
requires std::is_enum_v<Enum>
constexpr std::string_view to_string(Enum value) {
  return kWords<Enum>[static_cast<size_t>(value)];
}
}  // namespace stoker::config
