# find_package(thalweg): the targets thalweg::c (C), thalweg::c_static (C, linked statically) and thalweg::thalweg (C++17).
get_filename_component(_thalweg_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET thalweg::c)
  add_library(thalweg::c SHARED IMPORTED)
  set_target_properties(thalweg::c PROPERTIES
    IMPORTED_LOCATION "${_thalweg_prefix}/lib/libthalweg.so.0"
    IMPORTED_SONAME libthalweg.so.0
    INTERFACE_INCLUDE_DIRECTORIES "${_thalweg_prefix}/include")

  add_library(thalweg::c_static STATIC IMPORTED)
  set_target_properties(thalweg::c_static PROPERTIES
    IMPORTED_LOCATION "${_thalweg_prefix}/lib/libthalweg.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_thalweg_prefix}/include"
    INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;pthread;m;dl")

  add_library(thalweg::thalweg INTERFACE IMPORTED)
  set_target_properties(thalweg::thalweg PROPERTIES
    INTERFACE_LINK_LIBRARIES thalweg::c
    INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()

unset(_thalweg_prefix)
