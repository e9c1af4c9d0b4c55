// render_svg: curves over steps as a picture (SVG) for pages and reports.
//
// Threads: a function of its arguments.
#pragma once

#include <string>
#include <vector>

#include "ctl/plot_axis.h"

namespace stoker::ctl {

// 720 by 400, readable on light and on dark pages. The axes are those of render_plot(). Empty where
// no curve has a finite point.
std::string render_svg(const std::vector<Curve>& curves, const std::string& x_name);

}  // namespace stoker::ctl
