from attncourse.grading import configure

c = get_config()

c.CourseDirectory.course_id = "attncourse"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
configure(c)
