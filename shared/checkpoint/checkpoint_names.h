// What a checkpoint directory is called before it is visible, and after it is retired.
#pragma once

#include <string_view>

namespace stoker::checkpoint {

inline constexpr std::string_view kTemporaryPrefix = ".tmp-";
inline constexpr std::string_view kTrashPrefix = ".trash-";
inline constexpr char kLatestName[] = "latest";

}  // namespace stoker::checkpoint
