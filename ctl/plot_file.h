// write_plot: a plot as an image file, of the format that its name ends with.
//
// Threads:  any.
// Blocking: PNG while rsvg-convert runs, at most 60 s.
// Errors:   kInvalidArgument: another ending. PNG: kNotFound without rsvg-convert, with the package
//           that has it; those of run_program().
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shared/base/status.h"

namespace stoker::ctl {

enum class PlotFormat { kSvg, kPng, kHtml };
std::optional<PlotFormat> plot_format_of(std::string_view path);  // nullopt: another ending

// A page that shows the image and needs no other file. `title` can be any text.
std::string to_html(const std::string& svg, std::string_view title);

// Writes the image of render_svg() to `path`, which it replaces.
Status write_plot(const std::string& svg, const std::string& path);

}  // namespace stoker::ctl
