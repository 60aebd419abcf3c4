# find_package(flambeau REQUIRED), then target_link_libraries(program flambeau::flambeau)
#
# -DCMAKE_PREFIX_PATH is what `python -m flambeau cmake` prints: this folder and torch's.
include(CMakeFindDependencyMacro)
find_dependency(Torch)
if(NOT TARGET flambeau::flambeau)
  # shared: kernels find the names of src/python.cpp in it
  add_library(flambeau SHARED
    ${CMAKE_CURRENT_LIST_DIR}/src/archive.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/package.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/program.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/python.cpp
    ${CMAKE_CURRENT_LIST_DIR}/src/text.cpp)
  target_include_directories(flambeau PUBLIC ${CMAKE_CURRENT_LIST_DIR}/include)
  target_include_directories(flambeau PRIVATE ${CMAKE_CURRENT_LIST_DIR}/src)
  target_link_libraries(flambeau PUBLIC ${TORCH_LIBRARIES} PRIVATE ${CMAKE_DL_LIBS})
  target_compile_features(flambeau PUBLIC cxx_std_17)
  target_compile_options(flambeau PUBLIC ${TORCH_CXX_FLAGS_LIST})
  add_library(flambeau::flambeau ALIAS flambeau)
endif()
