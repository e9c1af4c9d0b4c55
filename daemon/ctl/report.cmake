# The report of a run. A library of its own, so that it can be tested without the command line.
stoker_library(report
  SOURCES "${CMAKE_CURRENT_LIST_DIR}/plot.cc" "${CMAKE_CURRENT_LIST_DIR}/run_history.cc" "${CMAKE_CURRENT_LIST_DIR}/run_report.cc"
  PUBLIC stoker::base stoker::metrics stoker::run)
