// Numbers and foreign text as people read them on a terminal.
//
// Threads: functions of their arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stoker::ctl {

// "1.2346", "12.35", "3.2e+08", "NaN": about `digits` (at most 7) significant digits, never more
// than 10 characters.
std::string format_number(double value, int digits);
// How many of these stand behind the point.
int num_decimals(double value, int digits);
// All of `digits` significant ones, however small the value: "0.152", "0.0031", "4e-09".
std::string format_significant(double value, int digits);
// A setting as a person would write it: "0.0003", "1.5e-05".
std::string format_setting(double value);
// 1234567 as "1 234 567".
std::string format_count(uint64_t value);
// "512 B", "4.81 MB": decimal units, as file managers and disks count.
std::string format_bytes(uint64_t bytes);
// "0.52 s", "4 min 2 s", "3 h 7 min", "2 d 4 h".
std::string format_duration(double seconds);

// Text that somebody else wrote (a file's name, a reason), with what would move a terminal's cursor
// or change its colours replaced by '?'.
std::string printable(std::string_view text);

}  // namespace stoker::ctl
