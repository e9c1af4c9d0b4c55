// file_stamp: whether a file or a directory has changed since it was read.
#pragma once

#include <string>

namespace stoker {

// Changes when the file or the directory does; empty: there is none.
std::string file_stamp(const std::string& path);

}  // namespace stoker
