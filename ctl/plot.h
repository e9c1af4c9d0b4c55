// render_plot: curves over steps, drawn with characters.
//
// Threads: a function of its arguments.
#pragma once

#include <string>
#include <vector>

#include "ctl/plot_axis.h"
#include "ctl/terminal.h"

namespace stoker::ctl {

// With axes, numbers and a legend; ends with a newline. As wide as style.columns (at least 40, at
// most 160), the drawing `rows` (at least 4) high. The y axis is logarithmic where the values span
// more than a factor of 100. Empty where no curve has a finite point.
std::string render_plot(const std::vector<Curve>& curves, const std::string& x_name, int rows,
                        const TextStyle& style);

}  // namespace stoker::ctl
